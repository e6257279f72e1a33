package realtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

const (
	webName    = "web.realtest.example"
	gitName    = "git.realtest.example"
	plainName  = "plain.realtest.example"
	deniedName = "denied.realtest.example"
)

// opened is a policy of one rule for a name on loopback; more is put into it.
func opened(name, port, more string) string {
	return fmt.Sprintf(`{"version": 1, "network": {"rules": [{"name": "the test's server", "hosts": [%q], "ports": [%s], "addresses": ["127.0.0.0/8"]%s}]}}`, name, port, more)
}

// A client is a program that fetches a URL and prints what it got.
type client struct {
	name string
	// make prepares the rig and returns the command line without the URL.
	make func(*testing.T, *rig) []string
	path func(*testing.T) string // to put before the system's, or nil
	// tunnels is a client that asks for a tunnel even without TLS. The proxy
	// lets that pass on port 80 alone.
	tunnels bool
}

func clients() []client {
	fixed := func(needs string, args ...string) func(*testing.T, *rig) []string {
		return func(t *testing.T, _ *rig) []string {
			programs(t, needs)
			return args
		}
	}
	return []client{
		{name: "curl", make: fixed("curl", "curl", "-sS", "--fail-with-body", "--max-time", "30")},
		{name: "wget", make: fixed("wget", "wget", "-q", "-T", "30", "-t", "1", "--content-on-error", "-O", "-")},
		{name: "python urllib", make: fixed("python3", "python3", "-c", `
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode()); sys.exit(1)
`)},
		// Node has authorities of its own; the switch makes it read the system's,
		// among which the test's is.
		{name: "node fetch", path: node24, tunnels: true, make: fixed("sh", "node", "--use-openssl-ca", "-e", `
fetch(process.argv[1]).then(async r => { console.log(await r.text()); process.exitCode = r.ok ? 0 : 1 })
`)},
		{name: "go", make: goClient},
	}
}

const goSource = `package main

import ("fmt"; "io"; "net/http"; "os"; "time")

func main() {
	c := http.Client{Timeout: 30 * time.Second}
	r, err := c.Get(os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	b, err := io.ReadAll(r.Body)
	fmt.Println(string(b), err)
	if r.StatusCode != 200 { os.Exit(1) }
}
`

// goBin is where the go command that runs the tests lies.
func goBin(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		kerneltest.Lacking(t, "the go command", err.Error())
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bin")
}

// goClient builds a static program into the repository.
func goClient(t *testing.T, r *rig) []string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "main.go")
	out := filepath.Join(r.repo, "goclient")
	r.must(os.WriteFile(src, []byte(goSource), 0o644))
	cmd := exec.Command("go", "build", "-o", out, src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the client: %v\n%s", err, said)
	}
	r.must(os.Chmod(out, 0o755))
	return []string{out}
}

// TestClients lets every client reach what the policy allows, over a tunnel
// and where the proxy ends TLS, and shows it the text of a denial elsewhere.
func TestClients(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		for _, c := range clients() {
			t.Run(c.name, func(t *testing.T) { testClient(t, who, c) })
		}
	})
}

func testClient(t *testing.T, who somebody, c client) {
	var options []rigOption
	if c.path != nil {
		options = append(options, onPath(c.path(t)))
	}
	own := ownAddress()
	r := newRig(t, who, map[string]string{webName: "127.0.0.1", plainName: own, deniedName: "127.0.0.1"}, options...)
	args := c.make(t, r)
	var seen diary
	port := r.serve("127.0.0.1:0", &seen, webName, deniedName)
	url := "https://" + webName + ":" + port + "/a/b"
	get := []visit{{"GET", "/a/b", ""}}
	sameVisits := cmpopts.IgnoreFields(visit{}, "protocol")
	compare := cmp.Options{cmp.AllowUnexported(visit{}), sameVisits}

	r.mention(r.outside(append(args, url)...).succeed(), "hello from GET /a/b")
	if d := cmp.Diff(get, seen.visited(), compare); d != "" {
		t.Fatalf("without a sandbox (-want +got):\n%s", d)
	}
	t.Run("tunnel", func(t *testing.T) {
		r := r.on(t)
		r.mention(r.inside(opened(webName, port, ""), append(args, url)...).succeed(), "hello from GET /a/b")
		if d := cmp.Diff(get, seen.visited(), compare); d != "" {
			t.Errorf("the server saw (-want +got):\n%s", d)
		}
	})
	t.Run("without TLS", func(t *testing.T) {
		r := r.on(t)
		address := own + ":0"
		if c.tunnels {
			address = own + ":80"
			bindable(t, address)
		}
		plain := r.serve(address, &seen)
		policy := opened(plainName, plain, `, "paths": ["/a/**"]`)
		r.mention(r.inside(policy, append(args, "http://"+plainName+":"+plain+"/a/b")...).succeed(), "hello from GET /a/b")
		res := r.inside(policy, append(args, "http://"+plainName+":"+plain+"/c")...).fail()
		r.mention(res, "denied by policy")
		if d := cmp.Diff(get, seen.visited(), compare); d != "" {
			t.Errorf("the server saw (-want +got):\n%s", d)
		}
	})
	t.Run("inspected", func(t *testing.T) {
		r := r.on(t)
		policy := opened(webName, port, `, "methods": ["GET"], "paths": ["/a/**"]`)
		r.mention(r.inside(policy, append(args, url)...).succeed(), "hello from GET /a/b")
		res := r.inside(policy, append(args, strings.Replace(url, "/a/b", "/c", 1))...).fail()
		r.mention(res, "denied by policy")
		if d := cmp.Diff(get, seen.visited(), compare); d != "" {
			t.Errorf("the server saw (-want +got):\n%s", d)
		}
	})
	t.Run("denied host", func(t *testing.T) {
		r := r.on(t)
		res := r.inside(opened(webName, port, ""), append(args, "https://"+deniedName+"/")...).fail()
		if res.took > time.Minute {
			t.Errorf("gave up after %v", res.took)
		}
		r.mention(res, "denied by policy")
		if v := seen.visited(); len(v) > 0 {
			t.Errorf("the server saw %v", v)
		}
	})
	t.Run("private address", func(t *testing.T) {
		r := r.on(t)
		policy := strings.Replace(opened(webName, port, ""), `, "addresses": ["127.0.0.0/8"]`, "", 1)
		r.inside(policy, append(args, url)...).fail()
		if v := seen.visited(); len(v) > 0 {
			t.Errorf("the server saw %v", v)
		}
	})
}

// TestGit clones, fetches and pushes over https, with a policy that lets only
// reading through and with one that lets all through.
func TestGit(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "git")
		r := newRig(t, who, map[string]string{gitName: "127.0.0.1"})
		port := r.serve("127.0.0.1:0", r.gitServer(), gitName)
		url := "https://" + gitName + ":" + port + "/acme.git"
		r.outside("git", "clone", "-q", url, filepath.Join(r.dir, "control")).succeed()

		reading := fmt.Sprintf(`{"version": 1, "network": {"rules": [
			{"name": "read", "hosts": [%[1]q], "ports": [%[2]s], "addresses": ["127.0.0.0/8"], "methods": ["GET", "HEAD"]},
			{"name": "fetch", "hosts": [%[1]q], "ports": [%[2]s], "addresses": ["127.0.0.0/8"], "methods": ["POST"], "paths": ["/acme.git/git-upload-pack"]}]}}`, gitName, port)
		work := `set -e
git clone -q "$1" clone
cd clone
git config user.name n; git config user.email n@n.example
git fetch -q origin
git commit -q --allow-empty -m "$2"
git push -q origin main
git log --format=%s origin/main`
		before := r.outside("git", "ls-remote", url, "main").succeed().stdout
		// Git shows the text of a refusal where it asks what there is, and for
		// what it sends only the number.
		res := r.inside(reading, "sh", "-c", work, "sh", url, "refused").fail()
		r.mention(res, "403")
		if after := r.outside("git", "ls-remote", url, "main").succeed().stdout; after != before || before == "" {
			t.Errorf("the server says %q after a refused push, before it %q", after, before)
		}
		res = r.inside(opened(gitName, port, `, "methods": ["GET"], "paths": ["/other/**"]`), "git", "clone", url, "other").fail()
		r.mention(res, "denied by policy")
		r.must(os.RemoveAll(filepath.Join(r.repo, "clone")))
		for _, more := range []string{"", `, "methods": ["GET", "POST"]`} {
			res = r.inside(opened(gitName, port, more), "sh", "-c", work, "sh", url, "pushed"+more).succeed()
			r.mention(res, "pushed")
			after := r.outside("git", "ls-remote", url, "main").succeed().stdout
			if after == before {
				t.Errorf("nothing was pushed with %q: %s", more, after)
			}
			before = after
			r.must(os.RemoveAll(filepath.Join(r.repo, "clone")))
		}
	})
}

// TestRegistries installs one small package each with the real clients from
// wherever they fetch on this machine, through the presets.
func TestRegistries(t *testing.T) {
	kerneltest.Long(t)
	const none = `{"version": 1, "network": {"rules": []}}`
	tests := []struct {
		preset, needs string
		script, want  string
		options       []rigOption
	}{
		{"npm", "npm", `npm install --no-audit --no-fund --loglevel=error ms@2.1.3 && node -p "'found ' + require('ms')('2d')"`, "found 172800000", nil},
		{"go", "go", `go mod init probe.example && go mod download github.com/google/go-cmp@v0.7.0 && cd "$(go env GOMODCACHE)/github.com/google" && echo found *`, "found go-cmp@v0.7.0", []rigOption{onPath(goBin(t))}},
		{"pypi", "pip", `pip install -q --no-cache-dir --disable-pip-version-check --target "$PWD/site" six==1.16.0 && PYTHONPATH="$PWD/site" python3 -c "import six; print('found', six.__version__)"`, "found 1.16.0", nil},
	}
	everybody(t, func(t *testing.T, who somebody) {
		for _, tt := range tests {
			t.Run(tt.preset, func(t *testing.T) {
				programs(t, tt.needs)
				r := newRig(t, who, nil, tt.options...)
				res := r.inside(fmt.Sprintf(`{"version": 1, "network": {"rules": [{"preset": %q}]}}`, tt.preset), "sh", "-c", tt.script).succeed()
				r.mention(res, tt.want)
				for _, left := range []string{"go.mod", "node_modules", "site"} {
					r.must(os.RemoveAll(filepath.Join(r.repo, left)))
				}
				res = r.inside(none, "timeout", "40", "sh", "-c", tt.script).fail()
				if strings.Contains(res.all(), tt.want) {
					t.Errorf("without the preset it was installed too")
				}
			})
		}
	})
}
