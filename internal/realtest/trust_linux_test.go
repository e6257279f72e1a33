package realtest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// trustKey is a key that a client can only have swapped where it trusts the
// session's authority: else it does not send its request.
const trustKey = "sk-trust-0123456789abcdefghijklmnopqrstuvwxyz"

// A keyed server says hello to who has the key, also to git and pip.
type keyed struct {
	git http.Handler
	mu  sync.Mutex
	// mu guards keys: those that came, by the first word of the path.
	keys map[string][]string
}

func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if _, password, ok := r.BasicAuth(); ok {
		key = password
	}
	word, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	k.mu.Lock()
	k.keys[word] = append(k.keys[word], key)
	k.mu.Unlock()
	switch {
	case key != trustKey:
		w.Header().Set("WWW-Authenticate", `Basic realm="trust"`)
		w.WriteHeader(http.StatusUnauthorized)
	case word == "acme.git":
		k.git.ServeHTTP(w, r)
	case word == "simple":
		fmt.Fprintf(w, `<a href="/files/probe-1-py3-none-any.whl">probe-1-py3-none-any.whl</a>`)
	default:
		fmt.Fprintf(w, "hello %s, at %s\n", word, rest)
	}
}

func (k *keyed) got(word string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.keys[word], trustKey)
}

// A truster is a client that has to trust the session's authority. Its script
// asks $1 (https://host:port) for a path that begins with its word, with $KEY.
type truster struct {
	word, name string
	make       func(*testing.T, *rig) // what its script needs
	script     string
}

func needing(names ...string) func(*testing.T, *rig) {
	return func(t *testing.T, _ *rig) { programs(t, names...) }
}

// trusters are those that need nothing but what CI's machine has anyway.
func trusters() []truster {
	return []truster{
		{word: "curl", name: "curl", make: needing("curl"), script: `curl -sS --fail -H "Authorization: Bearer $KEY" "$1/curl/x"`},
		// Git is signed in by the node.
		{word: "acme.git", name: "git", make: needing("git"), script: `git ls-remote "$1/acme.git" main && echo hello acme.git`},
		{word: "node", name: "node", make: needing("node"), script: nodeTrusts},
		{word: "urllib", name: "python urllib", make: needing("python3"), script: `python3 -c '
import os, sys, urllib.request
q = urllib.request.Request(sys.argv[1] + "/urllib/x", headers={"Authorization": "Bearer " + os.environ["KEY"]})
print(urllib.request.urlopen(q, timeout=60).read().decode())' "$1"`},
		{word: "requests", name: "python requests", make: needing("python3", "pip"), script: `python3 -c '
import os, sys
from pip._vendor import requests
r = requests.get(sys.argv[1] + "/requests/x", headers={"Authorization": "Bearer " + os.environ["KEY"]}, timeout=60)
r.raise_for_status(); print(r.text)' "$1"`},
		// Of what it finds it takes nothing: that it came so far is enough.
		{word: "simple", name: "pip", make: needing("pip"), script: `pip download -q --no-deps --no-cache-dir --disable-pip-version-check --retries 0 -d /tmp/d --index-url "https://x:$KEY@${1#https://}/simple" probe==2 2>&1 | grep -o "from versions: 1" && echo hello simple`},
		{word: "go", name: "go", make: func(t *testing.T, r *rig) { buildGo(t, r, "trusts", goTrusts) }, script: `./trusts "$1/go/x"`},
		{word: "java", name: "java", make: javaClient, script: `java -cp /tmp/none:. Trusts "$1/java/x"`},
	}
}

// nodeTrusts goes by CONNECT itself: Node asks for no proxy before version 24.
const nodeTrusts = `node -e '
const http = require("http"), https = require("https"), tls = require("tls"), proxy = new URL(process.env.HTTPS_PROXY), to = new URL(process.argv[1] + "/node/x")
const c = http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: to.host, headers: { host: to.host } })
c.on("connect", (_, socket) => https.get(to, { createConnection: () => tls.connect({ socket, servername: to.hostname }),
	headers: { Authorization: "Bearer " + process.env.KEY } }, r => { r.pipe(process.stdout); process.exitCode = r.statusCode == 200 ? 0 : 1 }))
c.end()' "$1"`

const goTrusts = `package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	q, _ := http.NewRequest("GET", os.Args[1], nil)
	q.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
	r, err := http.DefaultClient.Do(q)
	if err != nil { fmt.Println(err); os.Exit(1) }
	b, err := io.ReadAll(r.Body)
	fmt.Println(string(b), err)
}
`

// javaTrusts asks by both clients that Java has.
const javaTrusts = `
import java.net.*;
import java.net.http.*;

public class Trusts {
	public static void main(String[] args) throws Exception {
		String key = "Bearer " + System.getenv("KEY");
		HttpURLConnection c = (HttpURLConnection) new URL(args[0]).openConnection();
		c.setRequestProperty("Authorization", key);
		System.out.print(new String(c.getInputStream().readAllBytes()));
		HttpRequest q = HttpRequest.newBuilder(URI.create(args[0])).header("Authorization", key).build();
		System.out.print(HttpClient.newHttpClient().send(q, HttpResponse.BodyHandlers.ofString()).body());
	}
}
`

// javaClient compiles it into the repository, for every Java that there is.
// Where there is none no session has one either, so that this is said and is no
// failure: it is too large to be installed for this alone.
func javaClient(t *testing.T, r *rig) {
	t.Helper()
	for _, name := range []string{"java", "javac", "keytool"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("wanted %s, found none", name)
		}
	}
	r.must(os.WriteFile(filepath.Join(r.repo, "Trusts.java"), []byte(javaTrusts), 0o644))
	if said, err := exec.Command("javac", "-nowarn", "--release", "11", "-d", r.repo, filepath.Join(r.repo, "Trusts.java")).CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, said)
	}
}

// buildGo builds a static program into the repository.
func buildGo(t *testing.T, r *rig, name, source string) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "main.go")
	out := filepath.Join(r.repo, name)
	r.must(os.WriteFile(src, []byte(source), 0o644))
	cmd := exec.Command("go", "build", "-o", out, src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the client: %v\n%s", err, said)
	}
	r.must(os.Chmod(out, 0o755))
}

// trustRig is a node with a key for a server, and the policy that names it.
func trustRig(t *testing.T, who somebody, options ...rigOption) (r *rig, k *keyed, url, policy string) {
	t.Helper()
	r = newRig(t, who, map[string]string{webName: "127.0.0.1"}, options...)
	k = &keyed{git: r.gitServer(), keys: map[string][]string{}}
	port := r.serve("127.0.0.1:0", k, webName)
	if out, err := r.command(trustKey, nil, "secret", "set", "KEY", "--host", webName+":"+port); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return r, k, "https://" + webName + ":" + port, strings.Replace(opened(webName, port, ""), `"network"`, `"secrets": ["KEY"], "network"`, 1)
}

func (c truster) test(t *testing.T, r *rig, k *keyed, url, policy string) {
	r = r.on(t)
	c.make(t, r)
	r.own()
	r.mention(r.inside(policy, "sh", "-c", c.script, "sh", url).succeed(), "hello "+c.word)
	if !k.got(c.word) {
		t.Errorf("the key of %s did not arrive", c.name)
	}
}

// TestClientsTrustTheSession: where the way out ends TLS, each client takes the
// session's certificate for what it is, by the means that are its own.
func TestClientsTrustTheSession(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		r, k, url, policy := trustRig(t, who)
		for _, c := range trusters() {
			t.Run(c.name, func(t *testing.T) { c.test(t, r, k, url, policy) })
		}
		t.Run("every java", func(t *testing.T) { everyJava(t, r, url, policy) })
	}, older...)
}

// everyJava asks by each Java of the machine, and has its own tool read the
// store, seal and all.
func everyJava(t *testing.T, r *rig, url, policy string) {
	r = r.on(t)
	javaClient(t, r)
	homes, err := filepath.Glob("/usr/lib/jvm/*/bin/java")
	r.must(err)
	for _, java := range homes {
		if real, err := filepath.EvalSymlinks(java); err != nil || real != java {
			continue // one of several names
		}
		home := filepath.Dir(filepath.Dir(java))
		res := r.inside(policy, "sh", "-ec", `"$2/bin/java" -cp . Trusts "$1/java/x"; "$2/bin/keytool" -list -cacerts -storepass changeit`, "sh", url, home).succeed()
		r.mention(res, "hello java")
		r.mention(res, "session, ")
		if strings.Contains(res.all(), "Picked up") {
			t.Errorf("%s talks: %s", java, res.all())
		}
		outside := r.outside(filepath.Join(home, "bin", "keytool"), "-list", "-cacerts", "-storepass", "changeit").succeed()
		if in, out := strings.Count(res.stdout, "trustedCertEntry"), strings.Count(outside.stdout, "trustedCertEntry"); in < out-20 || in < 20 {
			t.Errorf("%s trusts %d inside, %d outside", java, in, out)
		}
	}
}

// TestToolsTrustTheSession: clients that have to be fetched or built first.
func TestToolsTrustTheSession(t *testing.T) {
	wantsTools(t)
	pkg := "@deno/linux-" + npmArch() + "-glibc"
	deno := fetched(t, packaged{"deno", "deno", pkg + "@2.9.6", pkg})
	everywhere(t, func(t *testing.T, who somebody) {
		r, k, url, policy := trustRig(t, who, having(deno))
		for _, c := range []truster{
			{word: "deno", name: "deno", make: needing(), script: `cat >deno.ts <<'E'
const r = await fetch(Deno.args[0], { headers: { Authorization: "Bearer " + Deno.env.get("KEY") } })
console.log(await r.text())
E
DENO_NO_UPDATE_CHECK=1 deno run --no-lock --allow-net --allow-env deno.ts "$1/deno/x"`},
			{word: "rustls", name: "rust rustls-native-certs", make: rustClient, script: `./rust rustls "$1/rustls/x"`},
			{word: "openssl", name: "rust openssl", make: rustClient, script: `./rust openssl "$1/openssl/x"`},
		} {
			t.Run(c.name, func(t *testing.T) { c.test(t, r, k, url, policy) })
		}
	}, older...)
}

// rust lets one test at a time build.
var rust sync.Mutex

// rustClient builds a program that speaks TLS by rustls with the system's
// authorities, and by OpenSSL.
func rustClient(t *testing.T, r *rig) {
	t.Helper()
	if _, err := exec.LookPath("cargo"); err != nil {
		t.Skip("wanted cargo, found none")
	}
	rust.Lock()
	defer rust.Unlock()
	dir := filepath.Join(tmp, "rust")
	r.must(os.MkdirAll(filepath.Join(dir, "src"), 0o755))
	r.must(os.WriteFile(filepath.Join(dir, "Cargo.toml"), []byte(rustManifest), 0o644))
	r.must(os.WriteFile(filepath.Join(dir, "src", "main.rs"), []byte(rustTrusts), 0o644))
	cmd := exec.Command("cargo", "build", "-q", "--manifest-path", filepath.Join(dir, "Cargo.toml"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the client: %v\n%s", err, said)
	}
	built, err := os.Open(filepath.Join(dir, "target", "debug", "rust"))
	r.must(err)
	defer built.Close()
	out, err := os.OpenFile(filepath.Join(r.repo, "rust"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	r.must(err)
	_, err = io.Copy(out, built)
	r.must(err)
	r.must(out.Close())
}

const rustManifest = `[package]
name = "rust"
version = "0.0.0"
edition = "2021"

[dependencies]
ureq = { version = "2", default-features = false, features = ["tls", "native-certs", "native-tls", "proxy-from-env"] }
native-tls = "0.2"
`

const rustTrusts = `fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut agent = ureq::AgentBuilder::new().try_proxy_from_env(true);
    if args[1] == "openssl" {
        agent = agent.tls_connector(std::sync::Arc::new(native_tls::TlsConnector::new().unwrap()));
    }
    let key = format!("Bearer {}", std::env::var("KEY").unwrap());
    match agent.build().get(&args[2]).set("Authorization", &key).call() {
        Ok(res) | Err(ureq::Error::Status(_, res)) => println!("{}", res.into_string().unwrap()),
        Err(e) => println!("{}", e),
    }
}
`
