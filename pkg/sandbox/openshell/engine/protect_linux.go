package engine

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
)

// protect turns guards into mounts of their own: deeper ones cover.
func (st *stage) protect(s sandbox.Spec) error {
	for _, p := range s.Protect {
		on := p.Path
		access := sandbox.ReadOnly
		switch p.Guard {
		case sandbox.Pin, sandbox.Thaw:
			access = sandbox.ReadWrite
		case sandbox.Shelter:
			on = sandbox.ShelterDir(p.Path)
		}
		source, err := sourceOf(s, on)
		if err != nil {
			return err
		}
		stat, err := protectable(source, p.Guard)
		if err != nil {
			return err
		}
		st.remember(on, stat)
		st.cover(openshell.Mount{Source: source, Target: on, ReadOnly: access == sandbox.ReadOnly})
	}
	return nil
}

// sourceOf is the path of the host behind a protected one.
func sourceOf(s sandbox.Spec, p string) (string, error) {
	for i := len(s.Mounts) - 1; i >= 0; i-- {
		m := s.Mounts[i]
		if m.Kind == sandbox.Bind && under(p, m.Target) {
			return path.Join(m.Source, p[len(m.Target):]), nil
		}
	}
	return "", &MountError{p, "it is protected, but not of the host", ""}
}

// protectable looks at what stands there, through no link.
func protectable(source string, g sandbox.Guard) (unix.Stat_t, error) {
	stat, err := look(source, unix.RESOLVE_NO_SYMLINKS)
	switch {
	case errors.Is(err, unix.ELOOP):
		return stat, &MountError{source, "it is, or passes through, a symbolic link", "name the real path"}
	case err != nil:
		return stat, fmt.Errorf("protecting %q: %w", source, err)
	case g == sandbox.Freeze && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Nlink > 1:
		return stat, &MountError{source, "it has another hard link, through which it could be changed", "copy it, or remove the other name"}
	}
	return stat, nil
}

// cover adds a mount, in place of one that has the same target: the gateway
// takes only one.
func (st *stage) cover(m openshell.Mount) {
	for i := range st.mounts {
		if st.mounts[i].Target == m.Target {
			st.mounts[i] = m
			return
		}
	}
	st.mounts = append(st.mounts, m)
}
