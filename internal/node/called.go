package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// called is the session that a client calls by its id or by the beginning of
// it.
func (n *Node) called(ctx context.Context, name string) (session.ID, error) {
	n.mu.Lock()
	var known []session.ID
	for id := range n.live {
		known = append(known, id)
	}
	for _, end := range n.ends {
		known = append(known, end.ID)
	}
	n.mu.Unlock()
	return calledIn(ctx, n.store, name, known)
}

// carried is the session that a client calls so, and what carries it, nil for
// one of the past.
func (n *Node) carried(ctx context.Context, name string) (session.ID, *life, error) {
	id, err := n.called(ctx, name)
	if err != nil {
		return "", nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return id, n.live[id], nil
}

// calledIn looks among the sessions of a store and some more.
func calledIn(ctx context.Context, s *store.Store, name string, more []session.ID) (session.ID, error) {
	id, err := session.Parse(name)
	if err != nil {
		return "", fault.UnknownSession(name)
	}
	if slices.Contains(more, id) {
		return id, nil
	}
	found, err := s.IDs(ctx, id)
	if err != nil {
		return "", err
	}
	for _, other := range more {
		if strings.HasPrefix(string(other), name) {
			found = append(found, other)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	switch {
	case slices.Contains(found, id):
		return id, nil
	case len(found) == 0 || len(name) < session.Shortest:
		return "", fault.UnknownSession(name)
	case len(found) == 1:
		return found[0], nil
	}
	return "", fault.Negative("%q is the beginning of more than one session: %s", name, several(found)).WithCode(api.CodeAmbiguousSession).
		WithHint("give more of its id").Problem()
}

func several(ids []session.ID) string {
	const named = 5
	var out []string
	for _, id := range ids[:min(len(ids), named)] {
		out = append(out, string(id))
	}
	if n := len(ids) - named; n > 0 {
		return strings.Join(out, ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(out, ", ")
}
