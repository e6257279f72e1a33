package registries

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
)

// A mavenRepo is a repository, for artefacts or for plug-ins.
type mavenRepo struct {
	id, url, source string
	// profile is empty for the super POM's own.
	profile string
	plugin  bool
}

// A mavenMirror stands for the repositories that of names.
type mavenMirror struct {
	id, of, url, source string
	blocked             bool
}

// mavenSettings is what settings.xml, or the super POM, says about places.
type mavenSettings struct {
	mirrors []mavenMirror
	repos   []mavenRepo
	active  []string // profiles
}

// over puts the person's settings before the machine's.
func (s mavenSettings) over(global mavenSettings) mavenSettings {
	out := mavenSettings{mirrors: slices.Clone(s.mirrors), repos: slices.Clone(s.repos)}
	out.active = append(slices.Clone(s.active), global.active...)
	for _, m := range global.mirrors {
		if m.id == "" || !slices.ContainsFunc(s.mirrors, func(o mavenMirror) bool { return o.id == m.id }) {
			out.mirrors = append(out.mirrors, m)
		}
	}
	out.repos = append(out.repos, global.repos...)
	return out
}

// activeRepos are those of active profiles and the defaults that no such
// repository of the same id replaces.
func (s mavenSettings) activeRepos(defaults []mavenRepo) []mavenRepo {
	var out []mavenRepo
	for _, r := range s.repos {
		if slices.Contains(s.active, r.profile) {
			out = append(out, r)
		}
	}
	for _, d := range defaults {
		if !slices.ContainsFunc(out, func(r mavenRepo) bool { return r.id == d.id && r.plugin == d.plugin }) {
			out = append(out, d)
		}
	}
	return out
}

// mirrorOf returns the mirror that Maven would take for a repository: one
// that names its id alone, else the first whose pattern fits.
func (s mavenSettings) mirrorOf(r mavenRepo) (mavenMirror, bool) {
	for _, m := range s.mirrors {
		if m.of == r.id {
			return m, true
		}
	}
	for _, m := range s.mirrors {
		if mirrorFits(m.of, r) {
			return m, true
		}
	}
	return mavenMirror{}, false
}

// mirrorFits reads a pattern such as "*,!snapshots" or "external:*".
func mirrorFits(pattern string, r mavenRepo) bool {
	fits := false
	for _, p := range strings.Split(pattern, ",") {
		p = strings.TrimSpace(p)
		not, negated := strings.CutPrefix(p, "!")
		switch {
		case negated && not == r.id:
			return false
		case p == r.id && p != "":
			return true
		case p == "*", p == "external:*" && isExternal(r.url), p == "external:http:*" && isExternalHTTP(r.url):
			fits = true
		}
	}
	return fits
}

func isExternal(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || strings.EqualFold(u.Scheme, "file") {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return !strings.EqualFold(u.Hostname(), "localhost") && !ip.IsLoopback()
}

func isExternalHTTP(raw string) bool {
	return isExternal(raw) && strings.HasPrefix(strings.ToLower(raw), "http:")
}

var errXMLDepth = errors.New("nested too deeply")

// parseMaven reads settings.xml or a super POM; place names the file. Elements
// are told apart by their path, so that a name in another place means nothing.
func parseMaven(b []byte, place string) (mavenSettings, error) {
	d := xml.NewDecoder(bytes.NewReader(b))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	p := mavenParser{place: place}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p.out, nil
		}
		if err != nil {
			// The decoder's own text may quote the file, so only the line.
			line, _ := d.InputPos()
			return mavenSettings{}, fmt.Errorf("line %d is not XML", line)
		}
		switch t := tok.(type) {
		case xml.StartElement:
			line, _ := d.InputPos()
			if !p.start(t.Name.Local, line) {
				return mavenSettings{}, errXMLDepth
			}
		case xml.CharData:
			if len(p.text) < 4096 {
				p.text = append(p.text, t...)
			}
		case xml.EndElement:
			p.end(t.Name.Local)
		}
	}
}

type mavenParser struct {
	out       mavenSettings
	place     string
	path      []string
	text      []byte
	repo      mavenRepo
	mirror    mavenMirror
	profile   string
	first     int // where the repositories of the present profile begin
	byDefault bool
}

func (p *mavenParser) start(name string, line int) bool {
	p.path = append(p.path, name)
	p.text = p.text[:0]
	switch name {
	case "mirror":
		p.mirror = mavenMirror{}
	case "repository", "pluginRepository":
		p.repo = mavenRepo{plugin: name == "pluginRepository"}
	case "profile":
		p.profile, p.first, p.byDefault = "", len(p.out.repos), false
	case "url":
		p.repo.source, p.mirror.source = at(p.place, line), at(p.place, line)
	}
	return len(p.path) <= 64
}

func (p *mavenParser) end(name string) {
	text := strings.TrimSpace(string(p.text))
	p.text = p.text[:0]
	parent := ""
	if len(p.path) >= 2 {
		parent = p.path[len(p.path)-2]
	}
	switch parent + "/" + name {
	case "mirror/id":
		p.mirror.id = text
	case "mirror/mirrorOf":
		p.mirror.of = text
	case "mirror/url":
		p.mirror.url = text
	case "mirror/blocked":
		p.mirror.blocked = text == "true"
	case "mirrors/mirror":
		p.out.mirrors = append(p.out.mirrors, p.mirror)
	case "repository/id", "pluginRepository/id":
		p.repo.id = text
	case "repository/url", "pluginRepository/url":
		p.repo.url = text
	case "repositories/repository", "pluginRepositories/pluginRepository":
		p.out.repos = append(p.out.repos, p.repo)
	case "profile/id":
		p.profile = text
	case "activation/activeByDefault":
		p.byDefault = text == "true"
	case "activeProfiles/activeProfile":
		p.out.active = append(p.out.active, text)
	case "profiles/profile":
		p.endProfile()
	}
	p.path = p.path[:len(p.path)-1]
}

// endProfile gives the profile's name to its repositories: the id may stand
// after them.
func (p *mavenParser) endProfile() {
	for i := p.first; i < len(p.out.repos); i++ {
		p.out.repos[i].profile = p.profile
	}
	if p.byDefault {
		p.out.active = append(p.out.active, p.profile)
	}
}
