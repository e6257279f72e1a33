package sandbox

import "context"

// narrator is the key of who hears why it takes long.
type narrator struct{}

// Narrate returns a context with which whoever makes a sandbox tells the person
// who waits for it, a line at a time, what takes long: an image that is fetched,
// for example. What a step took is not for it.
func Narrate(ctx context.Context, tell func(line string)) context.Context {
	return context.WithValue(ctx, narrator{}, tell)
}

// Tell tells whoever waits. Nobody is told where nobody listens.
func Tell(ctx context.Context, line string) {
	if tell, ok := ctx.Value(narrator{}).(func(string)); ok {
		tell(line)
	}
}
