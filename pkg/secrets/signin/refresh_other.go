//go:build !unix

package signin

import (
	"context"
	"net/http"
	"time"
)

// A Refresher renews sign-ins where their tools keep them; not on this system.
type Refresher struct {
	Client *http.Client
	Now    func() time.Time
	Step   func(string)
	Odd    func(string)
}

// Refresh always fails.
func (r *Refresher) Refresh(_ context.Context, t Tool, _ string, _ func(*SignIn) bool) (*SignIn, error) {
	return nil, errorf(Refused, "", "the sign-in of %s cannot be renewed on this system", t.Title)
}
