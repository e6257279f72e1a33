package profile

import (
	"embed"
	"path"
	"slices"
	"sync"
)

//go:embed tools/*.toml
var builtin embed.FS

// Builtin returns the profiles that ship with the program, by name. The slice
// and what it leads to must not be changed.
var Builtin = sync.OnceValue(func() []*Profile {
	files, err := builtin.ReadDir("tools")
	if err != nil {
		panic("BUG: no profiles: " + err.Error())
	}
	var out []*Profile
	for _, f := range files {
		text, err := builtin.ReadFile(path.Join("tools", f.Name()))
		if err != nil {
			panic("BUG: reading a profile: " + err.Error())
		}
		p, err := Parse(f.Name(), text)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		p.Source = ""
		out = append(out, p)
	}
	return out
})

// Text is a built-in profile as it was written, comments and all, or nothing.
func Text(name string) []byte {
	text, err := builtin.ReadFile(path.Join("tools", fileName(name)))
	if err != nil {
		return nil
	}
	return text
}

// Find returns the built-in profile of that name, or nil.
func Find(name string) *Profile {
	all := Builtin()
	if i := slices.IndexFunc(all, func(p *Profile) bool { return p.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}
