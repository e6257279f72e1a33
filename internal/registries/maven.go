package registries

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// superPOM is the file, in one of Maven's own jars, that every project
// inherits from: the default repositories stand there.
const superPOM = "/pom-4.0.0.xml"

// findMaven reads the super POM and the two settings files as Maven would put
// them together. Maven itself takes a second to start and is asked only for
// its home, where that is not plain.
func findMaven(ctx context.Context, l *look) error {
	user, err := l.mavenSettings(filepath.Join(l.env.Home, ".m2", "settings.xml"))
	if err != nil {
		return err
	}
	mvn, ok := l.program("mvn")
	if !ok {
		// One mirror for everything leaves no default to ask for.
		if m, ok := user.mirrorOf(mavenRepo{id: "central", url: "https://default.invalid"}); ok {
			l.addMavenRepos(mavenSettings{mirrors: []mavenMirror{m}}, []mavenRepo{{id: "central"}})
			return nil
		}
		return &MissingError{Registry: l.registry, Client: "mvn"}
	}
	home, err := l.mavenHome(ctx, mvn)
	if err != nil {
		return err
	}
	global, err := l.mavenSettings(filepath.Join(home, "conf", "settings.xml"))
	if err != nil {
		return err
	}
	defaults, err := l.superPOM(home)
	if err != nil {
		return err
	}
	settings := user.over(global)
	l.addMavenRepos(settings, settings.activeRepos(defaults))
	return nil
}

// addMavenRepos adds each repository, or the mirror that stands for it.
func (l *look) addMavenRepos(s mavenSettings, repos []mavenRepo) {
	for _, r := range repos {
		url, source := r.url, r.source
		if m, ok := s.mirrorOf(r); ok {
			if m.blocked {
				l.note("the repository that %s names is blocked by %s", r.source, m.source)
				continue
			}
			url, source = m.url, m.source
		}
		expanded, ok := l.expandMaven(url)
		if !ok {
			l.note("%s uses a property that only Maven knows and was left out", source)
			continue
		}
		l.addURL(expanded, source)
	}
}

// expandMaven puts in ${env.NAME} and ${user.home}.
func (l *look) expandMaven(s string) (string, bool) {
	for _, name := range npmVariables(s) {
		value, ok := l.env.Home, name == "user.home"
		if v, found := strings.CutPrefix(name, "env."); found {
			value, ok = l.vars[v]
		}
		if !ok {
			return "", false
		}
		s = strings.ReplaceAll(s, "${"+name+"}", value)
	}
	return s, true
}

// mavenHome is two directories above the program, or what Maven says where a
// version manager's script stands in front.
func (l *look) mavenHome(ctx context.Context, mvn string) (string, error) {
	if real, err := filepath.EvalSymlinks(mvn); err == nil {
		l.saw(real)
		home := filepath.Dir(filepath.Dir(real))
		if jars, _ := filepath.Glob(filepath.Join(home, "lib", "maven-*.jar")); len(jars) > 0 {
			return home, nil
		}
	}
	asked := "mvn --version"
	out, err := l.run(ctx, ask{args: []string{mvn, "-B", "--version"}})
	if err != nil {
		return "", l.failed(asked, err)
	}
	for line := range strings.Lines(string(out)) {
		if home, ok := strings.CutPrefix(strings.TrimSpace(line), "Maven home: "); ok && filepath.IsAbs(home) {
			return home, nil
		}
	}
	return "", l.failed(asked, errors.New("the answer does not name Maven's home"))
}

// superPOM reads the default repositories out of Maven's own jar.
func (l *look) superPOM(home string) ([]mavenRepo, error) {
	first, _ := filepath.Glob(filepath.Join(home, "lib", "maven-model-builder*.jar"))
	rest, _ := filepath.Glob(filepath.Join(home, "lib", "maven-*.jar"))
	for _, jar := range append(first, rest...) {
		b, err := readSuperPOM(jar)
		if err != nil {
			continue
		}
		l.saw(jar)
		p, err := parseMaven(b, "super POM in "+jar)
		if err != nil {
			return nil, l.failed(jar, err)
		}
		if len(p.repos) == 0 {
			return nil, l.failed(jar, errNoRegistry)
		}
		return p.repos, nil
	}
	return nil, l.failed(filepath.Join(home, "lib"), fmt.Errorf("no jar of Maven holds %s", superPOM[1:]))
}

func readSuperPOM(jar string) ([]byte, error) {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	for _, f := range z.File {
		if !strings.HasPrefix(f.Name, "org/apache/maven/") || !strings.HasSuffix(f.Name, superPOM) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(io.LimitReader(r, maxSettings))
	}
	return nil, errNoRegistry
}

func (l *look) mavenSettings(path string) (mavenSettings, error) {
	b, err := l.read(path)
	if err != nil || b == nil {
		return mavenSettings{}, err
	}
	s, err := parseMaven(b, path)
	if err != nil {
		return mavenSettings{}, l.failed(path, err)
	}
	return s, nil
}
