package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// lookup finds the program of argv0 as a shell does: as it is where it holds a
// slash, else in PATH of env. A relative path is read from dir. What is found
// but may not be executed is remembered, since "126" beats "127".
func lookup(argv0, dir string, env []string) (string, error) {
	if strings.Contains(argv0, "/") {
		if err := executable(absolute(argv0, dir)); err != nil {
			return "", execError(argv0, err)
		}
		return argv0, nil
	}
	var seen error = fs.ErrNotExist
	for _, d := range filepath.SplitList(variable(env, "PATH")) {
		if d == "" {
			d = "."
		}
		path := filepath.Join(d, argv0)
		if !filepath.IsAbs(path) {
			path = "./" + path
		}
		err := executable(absolute(path, dir))
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			seen = err
		}
	}
	return "", execError(argv0, seen)
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// executable reports why path cannot be a program, as far as its mode says;
// the kernel has the last word at exec.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}

// execError gives the code that a shell would end with.
func execError(program string, err error) error {
	code := 126
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		code = 127
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &sandbox.ExecError{Program: program, Code: code, Err: err}
}

// variable is the value of a name in env, the last one where there are more.
func variable(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			value = v
		}
	}
	return value
}
