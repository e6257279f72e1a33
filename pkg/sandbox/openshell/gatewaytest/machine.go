//go:build linux

package gatewaytest

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ownDir is the part of a system's programs that is the image's own, in which
// Options.Programs are put.
const ownDir = "/usr/local"

// rootDirs are what a system has beside /usr of programs and libraries.
var rootDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// machineDirs are the directories of this machine that a container gets in the
// place of an image's: gigabytes that are not copied.
func machineDirs() (dirs []string, err error) {
	entries, err := os.ReadDir("/usr")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if dir := filepath.Join("/usr", e.Name()); e.IsDir() && dir != ownDir {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range rootDirs {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// settings are the files below /etc without which the machine's programs are
// not whole.
var settings = []string{
	"alternatives", "ca-certificates.conf", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "os-release", "python3", "python3.*", "ssl/certs", "ssl/openssl.cnf",
}

// machineName is the image whose programs are this machine's.
const machineName = "mojoup-double-machine:latest"

// Machine makes an image for a gateway with [Options].Machine, and answers its
// name: of its own it has the settings of this machine's programs. It passes for
// a root of sessions: what the product looks for is there by name.
func Machine(t testing.TB) string {
	t.Helper()
	docker := Docker(t)
	imaging.Lock()
	defer imaging.Unlock()
	if imaged[machineName] {
		return machineName
	}
	sum := sha256.New()
	files := machineFiles(t)
	for _, f := range files {
		fmt.Fprintln(sum, f.header.Name, f.header.Linkname, f.header.Mode, f.header.Size, f.header.ModTime.UnixNano(), f.text)
	}
	have(t, docker, machineName, fmt.Sprintf("%x", sum.Sum(nil)), func() io.Reader {
		archive, w := io.Pipe()
		go func() { _ = w.CloseWithError(writeFiles(w, files)) }()
		return archive
	})
	return machineName
}

// A machineFile is one entry of an image; its content is a file of this machine
// or a text.
type machineFile struct {
	header tar.Header
	from   string
	text   string
}

func machineFiles(t testing.TB) (files []machineFile) {
	t.Helper()
	add := func(h tar.Header, from, text string) {
		if from == "" {
			h.Size = int64(len(text))
		}
		files = append(files, machineFile{h, from, text})
	}
	for _, dir := range []string{"etc", "etc/ssl", "usr", "usr/bin", "usr/sbin", "usr/local", "usr/local/bin", "opt", "var", "var/tmp", "var/log", "proc", "sys", "dev", "run", "root", "home"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, "", "")
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, "", "")
	for _, dir := range rootDirs {
		if to, err := os.Readlink(dir); err == nil {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: dir[1:], Linkname: to}, "", "")
		}
	}
	for _, stub := range []string{"usr/bin/bash", "usr/bin/sh", "usr/sbin/ip", "usr/sbin/nft"} {
		add(tar.Header{Typeflag: tar.TypeReg, Name: stub, Mode: 0o755}, "", "#!/bin/sh\n")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, "", "root:x:0:0:root:/root:/bin/sh\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, "", "root:x:0:\n")
	for _, pattern := range settings {
		found, _ := filepath.Glob(filepath.Join("/etc", pattern)) // the patterns are good
		for _, root := range found {
			files = append(files, copied(t, root)...)
		}
	}
	// What an image is looked into for lies in it, covered as it will be.
	for _, name := range []string{"lib/security/cacerts", "conf/net.properties"} {
		found, _ := filepath.Glob("/usr/lib/jvm/*/" + name)
		for _, file := range found {
			home := strings.TrimSuffix(file, "/"+name)
			if to, err := os.Readlink(home); err == nil {
				add(tar.Header{Typeflag: tar.TypeSymlink, Name: home[1:], Linkname: to}, "", "")
				continue
			}
			files = append(files, copied(t, file)...)
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(files, func(f machineFile) bool {
		again := seen[f.header.Name]
		seen[f.header.Name] = true
		return again
	})
}

// copied are the files below a directory of this machine that everybody may
// read, or the one file that it is.
func copied(t testing.TB, root string) (files []machineFile) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		h := tar.Header{Name: path[1:], Mode: int64(st.Mode().Perm()), ModTime: st.ModTime()}
		switch {
		case d.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case d.Type() == fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(path); err != nil {
				return err
			}
		case d.Type().IsRegular() && st.Mode()&0o004 != 0:
			h.Typeflag, h.Size = tar.TypeReg, st.Size()
		default:
			return nil
		}
		from := ""
		if h.Typeflag == tar.TypeReg {
			from = path
		}
		files = append(files, machineFile{h, from, ""})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func writeFiles(w io.Writer, files []machineFile) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		if err := f.write(archive); err != nil {
			return fmt.Errorf("%s: %w", f.header.Name, err)
		}
	}
	return archive.Close()
}

func (f machineFile) write(archive *tar.Writer) error {
	if err := archive.WriteHeader(&f.header); err != nil {
		return err
	}
	if f.from == "" {
		_, err := io.Copy(archive, strings.NewReader(f.text))
		return err
	}
	in, err := os.Open(f.from)
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, in)
	return errors.Join(err, in.Close())
}
