package signin

import (
	"maps"
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
