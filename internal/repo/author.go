package repo

import (
	"path/filepath"
	"strings"
)

// Author is the user.name and user.email that git on the host would use in
// this repository, from the host's configuration files and its own. Includes
// are followed where they are unconditional or ask for the git directory.
func (r Repository) Author(hostConfigs ...string) (name, email string) {
	files := hostConfigs
	if r.GitDir != "" {
		files = append(append([]string{}, files...), filepath.Join(r.CommonDir, "config"), filepath.Join(r.GitDir, "config.worktree"))
	}
	for _, file := range files {
		r.author(file, 0, &name, &email)
	}
	return name, email
}

func (r Repository) author(file string, depth int, name, email *string) {
	c, err := readGitConfig(file)
	if err != nil || depth > maxIncludes {
		return
	}
	for _, s := range c {
		switch {
		case s.key == "user.name":
			*name = s.value
		case s.key == "user.email":
			*email = s.value
		case s.key == "include.path", strings.HasSuffix(s.key, ".path") && r.includes(s.key):
			if path, ok := expand(filepath.Dir(file), s.value); ok {
				r.author(path, depth+1, name, email)
			}
		}
	}
}

// includes reports whether includeIf.gitdir:DIR/.path holds here. The other
// conditions are not asked: without them at most a name is missing.
func (r Repository) includes(key string) bool {
	dir, ok := strings.CutPrefix(key, "includeif.gitdir:")
	if !ok || r.GitDir == "" {
		return false
	}
	dir, ok = strings.CutSuffix(strings.TrimSuffix(dir, ".path"), "/")
	dir, fine := expand("/", dir)
	return ok && fine && under(r.GitDir, dir)
}
