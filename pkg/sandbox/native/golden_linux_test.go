package native

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		check(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	check(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", file, diff)
	}
}

// example is a session in a main work tree, with one of everything.
func example() sandbox.Spec {
	return sandbox.Spec{
		ID: "s1", Identity: sandbox.Identity{UID: 1000, GID: 1000}, Proxy: "127.0.0.1:3128", WorkDir: "/run/node/empty",
		Mounts: []sandbox.Mount{
			{Kind: sandbox.Bind, Source: "/usr", Target: "/usr"},
			{Kind: sandbox.Link, Source: "usr/bin", Target: "/bin"},
			{Kind: sandbox.Bind, Source: "/etc/ssl", Target: "/etc/ssl", Optional: true},
			{Kind: sandbox.Text, Target: "/etc/passwd", Content: []byte("u:x:1000:1000::/home/u:/bin/sh\n")},
			{Kind: sandbox.Text, Target: "/etc/ssl/cert.pem", Content: []byte("CA\n")},
			{Kind: sandbox.Scratch, Target: "/tmp", Access: sandbox.ReadWrite, Mode: os.ModeSticky | 0o777, Size: 1 << 30},
			{Kind: sandbox.Scratch, Target: "/home/u", Access: sandbox.ReadWrite, Mode: 0o700, NoExec: true},
			{Kind: sandbox.Scratch, Target: "/opt"},
			{Kind: sandbox.Text, Target: "/home/u/.gitconfig", Content: []byte("[user]\n"), Mode: 0o600},
			{Kind: sandbox.Bind, Source: "/home/u/tools", Target: "/home/u/tools", NoExec: true},
			{Kind: sandbox.Seed, Target: "/home/u/.tool/a/b.json", Content: []byte("{}\n")},
			{Kind: sandbox.Bind, Source: "/home/u/repo", Target: "/home/u/repo", Access: sandbox.ReadWrite},
		},
		Protect: []sandbox.Protection{
			{Path: "/home/u/repo/.git", Guard: sandbox.Pin},
			{Path: "/home/u/repo/.git/config", Guard: sandbox.Shelter},
			{Path: "/home/u/repo/.git/hooks", Guard: sandbox.Freeze},
			{Path: "/home/u/repo/.git/commondir", Guard: sandbox.HoldFile, Content: "."},
			{Path: "/home/u/repo/.git/logs", Guard: sandbox.Thaw},
			{Path: "/home/u/repo/.mojoup", Guard: sandbox.HoldDir},
		},
		Limits: sandbox.Limits{Processes: 512, Files: 4096},
		Shared: 10,
	}
}

func TestGoldenCompile(t *testing.T) {
	m := machine{abi: 7, filter: []byte("12345678"), scratch: 2 << 30, shares: most}
	disk := example()
	disk.Limits.Disk = 5 << 30
	disk.Proxy = "[::1]:3128"
	for name, s := range map[string]sandbox.Spec{"compile.txt": example(), "compile-disk.txt": disk} {
		check(t, validate(s))
		golden(t, name, describeAll(s, m))
	}
	m.abi = 3 // no scopes, no right for device ioctls
	golden(t, "compile-abi3.txt", describeAll(example(), m))
}

// describeAll writes both parts.
func describeAll(s sandbox.Spec, m machine) string {
	return "# base\n" + describe(compileBase(s, m)) + "# own\n" + describe(compileOwn(s, m)) + "# rest\n" + describe(compileRest(s, m))
}

// describe writes operations for people: one a line, zero fields left out.
func describe(ops []child.Op) string {
	var out strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&out, "%-10s", opNames[op.Code])
		if op.First != "" {
			fmt.Fprintf(&out, " %s", op.First)
		}
		if op.Second != "" && op.Second != op.First {
			fmt.Fprintf(&out, " -> %s", op.Second)
		}
		out.WriteString(details(op))
		if len(op.Blob) > 0 {
			fmt.Fprintf(&out, " %q", op.Blob)
		}
		for i, name := range flagNames {
			if op.Flags&(1<<i) != 0 {
				out.WriteString(" +" + name)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

func details(op child.Op) string {
	switch op.Code {
	case child.Bind, child.Text, child.Attributes:
		return attributeNames(" set", op.A) + attributeNames(" clear", op.B) + mode(op)
	case child.Root, child.Tmpfs, child.Dir, child.File:
		size := ""
		if op.A != 0 {
			size = fmt.Sprintf(" size=%d files=%d", op.A, op.B)
		}
		return size + mode(op)
	case child.Ruleset:
		return fmt.Sprintf(" handles=%#x scopes=%#x", op.A, op.B)
	case child.Rule:
		return fmt.Sprintf(" rights=%#x on-files=%#x", op.A, op.B)
	case child.Files:
		return fmt.Sprintf(" %d", op.A)
	case child.Rlimit:
		return fmt.Sprintf(" %d %d", op.B, op.C)
	case child.Loopback, child.Listen:
		return fmt.Sprintf(" %#x", op.A)
	}
	return ""
}

func mode(op child.Op) string {
	if op.C == 0 {
		return ""
	}
	return fmt.Sprintf(" mode=%#o", op.C)
}

func attributeNames(verb string, bits uint64) string {
	var names []string
	for _, a := range []struct {
		bit  uint64
		name string
	}{
		{unix.MOUNT_ATTR_RDONLY, "ro"}, {unix.MOUNT_ATTR_NOSUID, "nosuid"},
		{unix.MOUNT_ATTR_NODEV, "nodev"}, {unix.MOUNT_ATTR_NOEXEC, "noexec"},
	} {
		if bits&a.bit != 0 {
			names, bits = append(names, a.name), bits&^a.bit
		}
	}
	if bits != 0 {
		names = append(names, fmt.Sprintf("%#x", bits))
	}
	if len(names) == 0 {
		return ""
	}
	return verb + "=" + strings.Join(names, ",")
}

var opNames = map[child.Code]string{
	child.Root: "root", child.Dir: "dir", child.File: "file", child.Link: "link", child.Bind: "bind",
	child.Tmpfs: "tmpfs", child.Proc: "proc", child.Devpts: "devpts", child.Text: "text",
	child.Pool: "pool", child.Pivot: "pivot", child.Attributes: "attributes", child.Loopback: "loopback",
	child.Listen: "listen", child.Hostname: "hostname", child.Rlimit: "rlimit", child.Write: "write",
	child.Ruleset: "ruleset", child.Rule: "rule", child.Restrict: "restrict", child.Keep: "keep",
	child.Seal: "seal", child.Filter: "filter", child.Files: "files", child.Title: "title", child.Bound: "bound",
}

var flagNames = []string{"optional", "make", "inside", "strict", "single", "if-there", "the-link", "notify", "in-pool"}

// TestGoldenRefusals shows the filter as a table, so that a change of it is
// seen by whoever reviews one.
func TestGoldenRefusals(t *testing.T) {
	var out strings.Builder
	for _, r := range refusals() {
		if r.why == "" || len(r.calls) == 0 {
			t.Errorf("a row without calls or reason: %+v", r)
		}
		fmt.Fprintf(&out, "%s", strings.Join(r.calls, " "))
		for _, c := range r.when {
			sign := "="
			if c.another {
				sign = "!="
			}
			fmt.Fprintf(&out, " [%d]&%#x%s%#x", c.arg, c.mask, sign, c.value)
		}
		answer := "success, not done"
		if r.answer != 0 {
			answer = unix.ErrnoName(r.answer)
		}
		fmt.Fprintf(&out, " -> %s: %s", answer, r.why)
		if r.tried != untold {
			fmt.Fprintf(&out, " [told: to %s]", r.tried)
		}
		out.WriteString("\n")
	}
	golden(t, "refusals.txt", out.String())
}
