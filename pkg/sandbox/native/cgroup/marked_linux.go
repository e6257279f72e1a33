package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxGroups is how many control groups are looked at.
const maxGroups = 200_000

// Marked finds every group that is named as a sandbox's, in all of the trees
// that this process sees, and to which sandbox it belongs; and those of
// [Host.Delegate], which belong to none (""). A user other than root is shown
// that user's own.
func Marked(ctx context.Context) (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for control groups: %w", err)
	}
	out, left := map[string]string{}, maxGroups
	for _, m := range parseMounts(string(text)) {
		if m.kind != "cgroup" && m.kind != "cgroup2" {
			continue
		}
		if err := marked(ctx, m.point, out, &left); err != nil {
			return out, err
		}
	}
	return out, nil
}

func marked(ctx context.Context, top string, out map[string]string, left *int) error {
	return filepath.WalkDir(top, func(dir string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENODEV):
			return nil // it ends at this moment, or is nobody's that we may know
		case err != nil:
			return fmt.Errorf("looking for control groups: %w", err)
		case !d.IsDir():
			return nil
		}
		if *left--; *left < 0 {
			return fmt.Errorf("there are more than %d control groups", maxGroups)
		}
		given := strings.HasPrefix(d.Name(), personal)
		id, named := strings.CutPrefix(d.Name(), prefix)
		switch {
		case given:
			id = ""
		case !named || id == "":
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if uid := os.Geteuid(); uid == 0 || ok && int(stat.Uid) == uid {
			out[dir] = id
		}
		if given {
			return nil // below it are those of sandboxes
		}
		return fs.SkipDir
	})
}

// Holds are the processes in a group and below it, as far as this process may
// know.
func Holds(dir string) (pids []int) {
	left := maxGroups
	_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if left--; left < 0 {
			return fs.SkipAll
		}
		text, _ := os.ReadFile(filepath.Join(at, "cgroup.procs"))
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}
