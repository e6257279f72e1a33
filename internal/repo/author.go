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
		case s.key == "include.path", strings.HasSuffix(s.key, ".path") && r.includes(file, s.key):
			if path, ok := expand(filepath.Dir(file), s.value); ok {
				r.author(path, depth+1, name, email)
			}
		}
	}
}

// includes reports whether includeIf.gitdir:PATTERN.path holds here, as
// git-config(1) has it under "Conditional includes". The other conditions are
// not asked, nor letters in brackets: without them at most a name is missing.
func (r Repository) includes(file, key string) bool {
	pattern, ok := strings.CutPrefix(strings.TrimSuffix(key, ".path"), "includeif.gitdir")
	if !ok || r.GitDir == "" {
		return false
	}
	pattern, anyCase := strings.CutPrefix(pattern, "/i")
	if pattern, ok = strings.CutPrefix(pattern, ":"); !ok {
		return false
	}
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	switch rest, here := strings.CutPrefix(pattern, "./"); {
	case here:
		pattern = filepath.Join(filepath.Dir(file), rest)
	case strings.HasPrefix(pattern, "~"):
		if pattern, ok = expand("/", pattern); !ok {
			return false
		}
	case !strings.HasPrefix(pattern, "/"):
		pattern = "/**/" + pattern
	}
	const most = 4 // each tries every depth
	if strings.Count(pattern, "**") > most {
		return false
	}
	dir := r.GitDir
	if anyCase {
		pattern, dir = strings.ToLower(pattern), strings.ToLower(dir)
	}
	return matchesPath(strings.Split(pattern, "/"), strings.Split(dir, "/"))
}

// matchesPath reports whether names fit patterns, of which ** stands for any
// number of names.
func matchesPath(patterns, names []string) bool {
	for i, p := range patterns {
		if p == "**" {
			for j := i; j <= len(names); j++ {
				if matchesPath(patterns[i+1:], names[j:]) {
					return true
				}
			}
			return false
		}
		if i >= len(names) || p != names[i] && !(strings.Contains(p, "*") && matches(p, names[i])) {
			return false
		}
	}
	return len(patterns) == len(names)
}
