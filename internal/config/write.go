package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A lockedFile is a file of settings that this process alone edits. Its lock
// is on the directory: the file itself is replaced.
type lockedFile struct {
	path string // what is replaced: behind every symbolic link
	dir  *os.File
}

// lockFile makes the directory where it is missing, and waits for whoever
// edits there. Nothing in a file of settings is secret, so others may read it,
// as they may need to on a shared node.
func lockFile(path string) (*lockedFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(path); lerr == nil {
			return nil, errors.New("it is a symbolic link to nothing")
		}
		target, err = path, nil
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(target))
	if err != nil {
		return nil, err
	}
	if err := lock(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for another edit: %w", err), dir.Close())
	}
	return &lockedFile{path: target, dir: dir}, nil
}

// unlock lets the next one edit.
func (f *lockedFile) unlock() { f.dir.Close() }

// replace writes the file anew beside the old one and renames it over it, so
// that a reader or a crash finds one of the two whole.
func (f *lockedFile) replace(text []byte) (err error) {
	old, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err := errors.Join(fill(tmp, old, text), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), f.path); err != nil {
		return err
	}
	// The file is in place; that its name is on the disk too is worth a try
	// and no error.
	_ = f.dir.Sync()
	return nil
}

// fill writes the text with mode and owner of the old file.
func fill(tmp *os.File, old fs.FileInfo, text []byte) error {
	if _, err := tmp.Write(text); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if old != nil {
		mode = old.Mode().Perm()
		if err := keepOwner(tmp, old); err != nil {
			return err
		}
	}
	if err := tmp.Chmod(mode); err != nil {
		return err
	}
	return tmp.Sync()
}
