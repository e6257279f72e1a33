//go:build linux

package gatewaytest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// imageName is the small image of the tests, fitName the one that a session can
// have.
const imageName, fitName = "mojoup-double-busybox:latest", "mojoup-double-fit:latest"

var (
	imaging sync.Mutex
	imaged  = map[string]bool{}
)

// Docker ends a test where no Docker answers.
func Docker(t testing.TB) *client.Client {
	t.Helper()
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err == nil {
		t.Cleanup(func() { docker.Close() })
		_, err = docker.Ping(t.Context())
	}
	kerneltest.Require(t, "a running Docker", err)
	return docker
}

// Image makes a small image of a static busybox and answers its name: a shell
// where the product wants bash, the directories that every system has, and no
// working directory.
func Image(t testing.TB) string { return imported(t, imageName) }

// Fit is like Image, and passes for a root of sessions: what else the product
// wants is there by name. The double needs none of it.
func Fit(t testing.TB) string { return imported(t, fitName, "usr/sbin/nft") }

// imported makes an image once for all tests of a program.
func imported(t testing.TB, name string, stubs ...string) string {
	t.Helper()
	docker := Docker(t)
	imaging.Lock()
	defer imaging.Unlock()
	if imaged[name] {
		return name
	}
	busybox, err := exec.LookPath("busybox")
	kerneltest.Require(t, "busybox (Debian: busybox-static)", err)
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive := rootfs(t, program, strings.Fields(string(applets)), stubs)
	have(t, docker, name, fmt.Sprintf("%x", sha256.Sum256(archive)), func() io.Reader { return bytes.NewReader(archive) })
	return name
}

// have makes an image of an archive, whose sum stands in it. It is not made anew
// where it is there: each making leaves one without a name.
func have(t testing.TB, docker *client.Client, name, sum string, archive func() io.Reader) {
	t.Helper()
	if is, err := docker.ImageInspect(t.Context(), name); err != nil || is.Comment != sum {
		answer, err := docker.ImageImport(t.Context(), image.ImportSource{Source: archive(), SourceName: "-"}, name, image.ImportOptions{Message: sum})
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Close()
		if text, err := io.ReadAll(answer); err != nil || strings.Contains(string(text), "error") {
			t.Fatalf("import: %v %s", err, text)
		}
	}
	imaged[name] = true
}

func rootfs(t testing.TB, busybox []byte, applets, stubs []string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, content)
	}
	for _, dir := range []string{"bin", "etc", "lib", "usr", "usr/bin", "usr/sbin", "usr/lib", "var", "var/tmp", "var/log", "proc", "sys", "dev", "run", "root", "home"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, "")
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, "")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, string(busybox))
	for _, a := range slices.DeleteFunc(applets, func(a string) bool { return a == "busybox" || a == "bash" }) {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox"}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/bash", Mode: 0o755}, "#!/bin/sh\nexec /bin/sh \"$@\"\n")
	for _, s := range stubs {
		add(tar.Header{Typeflag: tar.TypeReg, Name: s, Mode: 0o755}, "#!/bin/sh\n")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, "root:x:0:0:root:/root:/bin/sh\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, "root:x:0:\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
