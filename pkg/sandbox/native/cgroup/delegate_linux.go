package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Here looks for the control groups that this process may use.
func Here() *Host {
	return Find(os.DirFS("/"), func(file string) error {
		return unix.Faccessat(unix.AT_FDCWD, file, unix.W_OK, unix.AT_EACCESS)
	})
}

// given are the files that a delegated group's new owner may write, on either
// version: by them processes come in and, on version 2, controllers are passed
// on. The limits of the group itself stay root's.
var given = []string{"cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"}

// Delegate makes a group for a node that runs as uid, so that it may make groups
// for its sandboxes below: without being root it could make none. What
// [Group.Start] starts is born in it. The name, which keeps the people of several
// system nodes apart, has a dot, so that it is no sandbox's. On version 2 the node
// starts in the leaf that [Find] looks for.
//
// A group of that name which is there already is taken: it may still hold what
// a dead node of the same person left. Where there are no groups to make it in,
// it is nil without an error.
func (h *Host) Delegate(name string, uid, gid int) (*Group, error) {
	g := &Group{os: h.os, lost: map[Controller]error{}}
	for _, c := range Controllers() {
		in, ok := h.at[c]
		if !ok {
			continue
		}
		if in.unified {
			if err := h.passOn(in, c); err != nil {
				return nil, err
			}
		}
		if err := g.delegate(in, path.Join(in.dir, personal+name), uid, gid, c); err != nil {
			g.Release()
			return nil, fmt.Errorf("making a control group for uid %d: %w", uid, err)
		}
	}
	if len(g.parts) == 0 {
		return nil, nil
	}
	return g, nil
}

// personal begins the names of delegated groups.
const personal = "mojoup.user-"

// delegate makes the directory in one tree, unless another controller has, and
// gives it away.
func (g *Group) delegate(in place, dir string, uid, gid int, c Controller) error {
	for _, p := range g.parts {
		if p.place == in {
			p.controllers = append(p.controllers, c)
			return nil
		}
	}
	dirs := []string{dir}
	if in.unified {
		dirs = append(dirs, path.Join(dir, leaf))
	}
	for _, d := range dirs {
		if err := g.os.mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chown(d, uid, gid); err != nil {
			return err
		}
		for _, file := range given {
			if err := os.Chown(path.Join(d, file), uid, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	g.bound(in, dir)
	g.parts = append(g.parts, &part{place: in, group: dirs[len(dirs)-1], controllers: []Controller{c}})
	return nil
}

// mostBelow is how many groups a person may make below theirs: the kernel has
// 65,535 that count memory, for everybody together.
const mostBelow = 4096

// bound bounds how many groups its new owner may make below a delegated one. The
// file stays root's. Version 1 has no such bound.
func (g *Group) bound(in place, dir string) {
	if in.unified {
		_ = g.os.write(path.Join(dir, "cgroup.max.descendants"), strconv.Itoa(mostBelow))
	}
}

// Release removes a delegated group. One in which something is left stays: the
// next node of that person finds it there and clears up.
func (g *Group) Release() {
	if g == nil {
		return
	}
	for _, p := range g.parts {
		_ = os.Remove(p.group)
		if p.unified {
			_ = os.Remove(path.Dir(p.group))
		}
	}
}
