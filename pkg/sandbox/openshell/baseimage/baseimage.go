// Package baseimage promises an image that sessions can start in: a Debian
// system with what OpenShell needs of one (a shell, iproute2, nftables, no
// working directory), with git, node and python, and with the agent tools that
// somebody chose.
//
// It is made on this machine, of packages from where this machine gets its own,
// and handed to Docker as an archive: no image of anybody else is trusted. Where
// no Debian can be made here, an image that Docker has can be built upon.
package baseimage

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/program"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
)

// needed are the packages of every image: what OpenShell needs, then what
// sessions do.
var needed = []string{
	"bash", "ca-certificates", "iproute2", "nftables",
	"curl", "diffutils", "git", "less", "make", "nodejs", "npm", "openssh-client", "patch", "procps", "python3", "python3-pip", "python3-venv", "ripgrep", "unzip", "xz-utils",
}

// A Tool is an agent tool that can be in an image, as its npm package.
type Tool struct{ Name, Package string }

// Tools are those that can be chosen, by the name of their program.
var Tools = []Tool{
	{"claude", "@anthropic-ai/claude-code"}, {"codex", "@openai/codex"}, {"copilot", "@github/copilot"}, {"kilo", "@kilocode/cli"}, {"opencode", "opencode-ai"},
}

// node is newer than Debian's: tools ask for one that obeys proxy variables.
const node = "node@24"

// A Recipe is what is wanted. The zero value is a plain Debian.
type Recipe struct {
	// Ref is what the image is called.
	Ref string
	// From is an image that Docker has, to build upon; empty means that a
	// system is made of Debian's packages.
	From string
	// Suite of Debian; empty means that of this machine, or bookworm.
	Suite string
	// Tools are names of agent tools.
	Tools []string
	// Packages are Debian's, beside those that are needed.
	Packages []string
}

// An Error says why no image was made.
type Error struct{ Sentence, Advice string }

func (e *Error) Error() string { return e.Sentence }

// Hint says what to do.
func (e *Error) Hint() string { return e.Advice }

// check refuses what would fail late.
func (r Recipe) check() error {
	if r.Ref == "" {
		return &Error{"an image needs a name", "give it one: --name NAME"}
	}
	for _, t := range r.Tools {
		if !slices.ContainsFunc(Tools, func(k Tool) bool { return k.Name == t }) {
			var names []string
			for _, k := range Tools {
				names = append(names, k.Name)
			}
			return &Error{fmt.Sprintf("no agent tool is called %q", t), "tools: " + strings.Join(names, ", ")}
		}
	}
	for _, p := range append([]string{r.Suite}, r.Packages...) {
		if strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789.+-") != "" || strings.HasPrefix(p, "-") {
			return &Error{fmt.Sprintf("%q is no name of a package or suite of Debian", p), "see apt-cache search"}
		}
	}
	return nil
}

// Build makes an image, telling every line that the programs it runs say.
func Build(ctx context.Context, d *daemon.Daemon, r Recipe, say func(string)) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.From == "" {
		if err := r.debian(ctx, d, say); err != nil {
			return err
		}
	} else if err := d.Change(ctx, r.From, r.Ref, here("sh", "-c", install(slices.Concat(needed, r.Packages))), say); err != nil {
		return fmt.Errorf("installing in %s: %w", r.From, err)
	}
	if len(r.Tools) == 0 {
		return nil
	}
	argv := []string{"npm", "install", "-g", "--no-fund", "--no-audit", node}
	for _, t := range Tools {
		if slices.Contains(r.Tools, t.Name) {
			argv = append(argv, t.Package)
		}
	}
	say("installing " + strings.Join(argv[5:], " "))
	if err := d.Change(ctx, r.Ref, r.Ref, here(argv...), say); err != nil {
		return fmt.Errorf("installing agent tools: %w", err)
	}
	return nil
}

func install(packages []string) string {
	return "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -q -y --no-install-recommends " + strings.Join(packages, " ") + " && apt-get clean"
}

// bundlePaths are where systems keep the file of certificate authorities.
var bundlePaths = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// here is a program that reaches where packages come from as this machine's
// own clients do: by its proxies, its registry, and trusting whom it trusts.
func here(argv ...string) daemon.Change {
	c := daemon.Change{Argv: argv}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if v := os.Getenv(name); v != "" {
			c.Env = append(c.Env, name+"="+v)
		}
	}
	const inside = "/run/mojoup-bundle.crt"
	for _, bundle := range bundlePaths {
		real, err := filepath.EvalSymlinks(bundle)
		if err != nil {
			continue
		}
		c.Binds = append(c.Binds, real+":"+inside+":ro")
		for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "npm_config_cafile", "PIP_CERT", "CURL_CA_BUNDLE"} {
			c.Env = append(c.Env, name+"="+inside)
		}
		break
	}
	return c
}

// debian makes a system of packages and hands it to Docker while it is made.
func (r Recipe) debian(ctx context.Context, d *daemon.Daemon, say func(string)) error {
	suite, mirror := r.Suite, ""
	if own, at := sources(); at != "" {
		mirror = at
		if suite == "" {
			suite = own
		}
	}
	if suite == "" {
		suite = "bookworm"
	}
	packages := strings.Join(slices.Concat(needed, r.Packages), ",")
	if program, err := exec.LookPath("mmdebstrap"); err == nil {
		argv := []string{program, "--variant=minbase", "--include=" + packages, suite, "-"}
		if mirror != "" {
			argv = append(argv, mirror)
		}
		return feed(ctx, d, r.Ref, say, argv...)
	}
	program, err := exec.LookPath("debootstrap")
	if err != nil || os.Geteuid() != 0 {
		return &Error{"no Debian system can be made here: mmdebstrap is not installed, and debootstrap needs root",
			"sudo apt-get install mmdebstrap, or build upon an image that Docker has: --from debian:bookworm"}
	}
	dir, err := os.MkdirTemp("", "mojoup-image-")
	if err != nil {
		return fmt.Errorf("making room for a system: %w", err)
	}
	defer os.RemoveAll(dir)
	// It does not find its way through everything that node needs: apt does.
	argv := []string{program, "--variant=minbase", "--include=ca-certificates", suite, dir}
	if mirror != "" {
		argv = append(argv, mirror)
	}
	say("making a Debian " + suite + " (a minute or two)")
	if err := tell(ctx, say, argv...); err != nil {
		return fmt.Errorf("making a Debian system: %w", err)
	}
	if err := feed(ctx, d, r.Ref, say, "tar", "-C", dir, "--numeric-owner", "--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*", "-c", "."); err != nil {
		return err
	}
	if err := d.Change(ctx, r.Ref, r.Ref, here("sh", "-c", install(slices.Concat(needed, r.Packages))), say); err != nil {
		return fmt.Errorf("installing packages: %w", err)
	}
	return nil
}

// feed imports what a program writes, all of it or nothing.
func feed(ctx context.Context, d importer, ref string, say func(string), argv ...string) error {
	running, end := context.WithCancel(ctx)
	defer end()
	cmd := program.Command(running, argv...)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, &lines{say: say}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", filepath.Base(argv[0]), err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- err
		_ = in.CloseWithError(err) // of nil, this is the end of what it wrote
	}()
	err := d.Import(ctx, ref, out)
	if err == nil {
		_, _ = io.Copy(io.Discard, out)
	}
	select {
	case failed := <-ended:
		err = cmp.Or(failed, err) // the first is why the second
	default: // Docker took no more
		end()
		_ = out.Close()
		<-ended
	}
	if err != nil {
		return fmt.Errorf("making the image with %s: %w", filepath.Base(argv[0]), err)
	}
	return nil
}

// importer is the part of a Docker that feed needs.
type importer interface {
	Import(ctx context.Context, ref string, archive io.Reader) error
}

func tell(ctx context.Context, say func(string), argv ...string) error {
	cmd := program.Command(ctx, argv...)
	w := &lines{say: say}
	cmd.Stdout, cmd.Stderr = w, w
	return program.Ended(ctx, cmd.Run())
}

// lines tells whole lines.
type lines struct {
	say  func(string)
	rest string
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest += string(p)
	for {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok {
			if len(l.rest) > 4096 {
				l.rest = ""
			}
			return len(p), nil
		}
		l.rest = rest
		l.say(strings.TrimRight(line, "\r"))
	}
}

// sources reads where this machine gets Debian's packages from, if it is one.
func sources() (suite, mirror string) {
	for _, file := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		suite, mirror = readSources(f)
		_ = f.Close()
		if mirror != "" {
			return suite, mirror
		}
	}
	return "", ""
}

// readSources finds the first archive of binary packages, in either form of
// sources.list(5).
func readSources(r io.Reader) (suite, mirror string) {
	uri := ""
	for in := bufio.NewScanner(r); in.Scan(); {
		f := strings.Fields(in.Text())
		switch {
		case len(f) == 0:
			uri = ""
		case f[0] == "deb":
			for len(f) > 1 && strings.HasPrefix(f[1], "[") {
				f = slices.Delete(f, 1, 1+slices.IndexFunc(f[1:], func(s string) bool { return strings.HasSuffix(s, "]") })+1)
			}
			if len(f) > 2 && !strings.ContainsAny(f[2], "/-") {
				return f[2], f[1]
			}
		case f[0] == "URIs:" && len(f) > 1:
			uri = f[1]
		case f[0] == "Suites:" && len(f) > 1 && uri != "" && !strings.ContainsAny(f[1], "/-"):
			return f[1], uri
		}
	}
	return "", ""
}
