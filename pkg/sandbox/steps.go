package sandbox

import "context"

// observer is the key of who is told steps.
type observer struct{}

// Observe returns a context with which whoever carries a sandbox out tells each
// step that has been taken, as [Reached] names it, and waits for told to return.
// It is for tests of what is left by a death at exactly that moment, which ask
// a whole run for the names first: a new step cannot be forgotten by them.
func Observe(ctx context.Context, told func(step string)) context.Context {
	return context.WithValue(ctx, observer{}, told)
}

// Reached tells that something outside of the sandbox has been changed: made,
// written down, or taken away. Nobody is told where nobody observes.
func Reached(ctx context.Context, step string) {
	if told, ok := ctx.Value(observer{}).(func(string)); ok {
		told(step)
	}
}
