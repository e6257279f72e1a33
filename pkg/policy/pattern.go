package policy

// A HostPattern is one entry of "hosts", for those who bind something else to
// hosts in the same words. Its zero value matches nothing.
type HostPattern struct{ p hostPattern }

// ParseHostPattern reads "x.example", "*.x.example" (exactly one label before
// x), "**.x.example" (one or more) or a literal address. The error has a Hint
// method where something can be advised.
func ParseHostPattern(s string) (HostPattern, error) {
	p, f := parseHostPattern(s)
	if f != nil {
		return HostPattern{}, f
	}
	return HostPattern{p}, nil
}

// Match reports whether a host in normal form fits.
func (p HostPattern) Match(host string) bool { return p.p.matches(host) }

// String is the pattern in normal form.
func (p HostPattern) String() string { return p.p.String() }

// A PathPattern is one entry of "paths". Its zero value matches nothing.
type PathPattern struct{ p pathPattern }

// ParsePathPattern reads a pattern of paths in normal form. The error has a
// Hint method where something can be advised.
func ParsePathPattern(s string) (PathPattern, error) {
	p, f := parsePathPattern(s)
	if f != nil {
		return PathPattern{}, f
	}
	return PathPattern{p}, nil
}

// Match reports whether a path in normal form fits.
func (p PathPattern) Match(path string) bool { return len(p.p.segments) > 0 && p.p.match(path) }

// String is the pattern as it was written.
func (p PathPattern) String() string { return p.p.text }

// CheckSecretName refuses what could not stand under "secrets". The error does
// not repeat what may be a key that somebody pasted.
func CheckSecretName(s string) error {
	if f := checkSecretName(s); f != nil {
		return f
	}
	return nil
}
