package signin

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// PlaceVariables are the variables that name directories of the tools, sorted.
func PlaceVariables(tools []Tool) []string {
	all := map[string]bool{}
	for _, t := range tools {
		for _, p := range t.Places {
			for _, name := range p.Variables {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Files are those in which a person's tools keep their sign-ins, as far as they
// are there: by the names that the tools know, which may be links.
func Files(tools []Tool, w World) (files []string) {
	for _, t := range tools {
		for _, p := range t.Places {
			if file := filepath.Join(p.dir(w), p.File); p.File != "" && !slices.Contains(files, file) {
				if _, err := os.Lstat(file); err == nil {
					files = append(files, file)
				}
			}
		}
	}
	return files
}
