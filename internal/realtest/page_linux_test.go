package realtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// A browser is a real one, run by a rig's somebody: whose its connections are
// is what the node asks the kernel.
type browser struct {
	*rig
	ctx context.Context

	mu       sync.Mutex // guards what follows
	asked    []string   // addresses of requests
	failures []string   // what the browser itself complained of
}

// foreign is a name that somebody else's page is told to lead to this machine.
const foreign = "rebinding.example"

func (r *rig) browser() *browser {
	r.t.Helper()
	programs(r.t, "chromium")
	profile := filepath.Join(r.dir, "browser")
	r.must(os.Mkdir(profile, 0o700))
	r.must(os.Chown(profile, r.who.uid, r.who.gid))
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("/usr/bin/chromium"), chromedp.UserDataDir(profile), chromedp.NoSandbox,
		// Nothing of it leaves this machine.
		chromedp.Flag("host-resolver-rules", "MAP "+foreign+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE *.localhost, EXCLUDE 127.0.0.1"),
		chromedp.Env("HOME="+r.home),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if r.who.uid != os.Getuid() {
				cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.who.uid), Gid: uint32(r.who.gid)}
			}
		}))...)
	r.t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	r.t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*within)
	r.t.Cleanup(cancel)
	b := &browser{rig: r, ctx: ctx}
	b.must(chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			b.asked = append(b.asked, ev.Request.URL)
		case *cdplog.EventEntryAdded:
			b.failures = append(b.failures, ev.Entry.Text)
		}
	}))
	call(b, network.Enable, network.EnableParams{})
	call(b, cdplog.Enable, cdp.Empty{})
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
}

// call calls what the library has no action for.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
}

// text is what an expression of JavaScript yields, once it has. The page has none
// of its own; the browser evaluates it for the test.
func (b *browser) text(expression string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("the browser: %v: %s", err, expression)
	}
	return out
}

// saw returns and forgets what was asked for and complained of.
func (b *browser) saw() (asked, failures []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, failures, b.asked, b.failures = b.asked, b.failures, nil, nil
	return asked, failures
}

// picture keeps a screenshot where somebody wants to look at it.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("MOJOUP_TEST_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	b.must(err)
	b.must(os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// faint lists texts whose contrast with what is behind them is below 4.5 to 1,
// as WCAG counts it.
const faint = `(() => {
  const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c } return 'rgb(255, 255, 255)' };
  return [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())).map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), e.textContent.trim().slice(0, 40)] }).filter(([ratio]) => ratio < 4.5).join('; ') })()`

// disorder lists what a reader who does not see the page would stumble over.
const disorder = `(() => { const bad = [], d = document;
  if (d.documentElement.lang != 'en') bad.push('no language');
  if (d.querySelectorAll('h1').length != 1) bad.push('not one h1');
  if (d.querySelectorAll('main').length != 1) bad.push('not one main');
  let level = 0; for (const h of d.querySelectorAll('h1,h2,h3')) { const l = +h.tagName[1]; if (l > level + 1) bad.push('skips to ' + h.tagName); level = l }
  for (const s of d.querySelectorAll('section')) { const h = d.getElementById(s.getAttribute('aria-labelledby')); if (!h || !s.contains(h)) bad.push('a section without a name') }
  const ids = [...d.querySelectorAll('[id]')].map(e => e.id); if (new Set(ids).size != ids.length) bad.push('an id twice');
  for (const l of d.querySelectorAll('ul > *, ol > *')) if (l.tagName != 'LI') bad.push('a list of ' + l.tagName);
  for (const l of d.querySelectorAll('dl > *')) if (l.tagName != 'DIV' || l.children[0].tagName != 'DT' || l.children[1].tagName != 'DD') bad.push('a broken dl');
  for (const a of d.querySelectorAll('a')) if (!a.textContent.trim()) bad.push('a link without a name');
  if (d.querySelector('script,img,iframe,form,[style],[onclick]')) bad.push('more than text');
  return bad.join('; ') })()`

// TestPageInABrowser opens the node page in a real browser while a session runs.
func TestPageInABrowser(t *testing.T) {
	kerneltest.Long(t)
	who := somebody{uid: os.Getuid(), gid: os.Getgid()}
	if who.uid == 0 {
		who = somebody{uid: 1000, gid: 1000}
	}
	r := newRig(t, who, nil)
	url, port := r.page()
	r.detached("sh", "-c", `exec sleep 300 # <script>document.title = "taken"</script>`)
	b := r.browser()

	b.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("h1")))
	if got := b.text("document.querySelector('h1').innerText"); got != "Agents run in a sandbox" {
		t.Errorf("the page's first words are %q", got)
	}
	if got := b.text("document.title"); got != "Agents run in a sandbox · mojoup-node" {
		t.Errorf("the title is %q", got)
	}
	shown := b.text("document.body.innerText")
	for _, want := range []string{"not offered: set node.roles.sandbox", "auto (takes native)", "can sandbox agents", "Sessions (1)", "sh -c exec sleep 300",
		`<script>document.title = "taken"</script>`, r.repo, "running", "0 allowed, 0 denied", "Landlock", "look again"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	asked, failures := b.saw()
	if len(asked) != 2 || asked[0] != url || asked[1] != url+"style.css" {
		t.Errorf("the browser asked for %q", asked)
	}
	if len(failures) > 0 {
		t.Errorf("the browser complains: %q", failures)
	}
	b.looksRight()
	b.isOwn(url, port)
	b.link()
	if t.Failed() {
		t.Logf("the page:\n%s", shown)
	}
}

// looksRight looks at the page bright and dark, wide and narrow.
func (b *browser) looksRight() {
	b.t.Helper()
	if bad := b.text(disorder); bad != "" {
		b.t.Errorf("the page is out of order: %s", bad)
	}
	grounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		grounds[b.text("getComputedStyle(document.body).backgroundColor")] = true
		if bad := b.text(faint); bad != "" {
			b.t.Errorf("%s: hard to read: %s", scheme, bad)
		}
		for _, width := range []int64{320, 1280} {
			b.do(chromedp.EmulateViewport(width, 900))
			if over := b.text("String(document.documentElement.scrollWidth - innerWidth)"); over != "0" {
				b.t.Errorf("%s: at %d pixels the page is %s too wide", scheme, width, over)
			}
			b.picture(fmt.Sprintf("page-%s-%d", scheme, width))
		}
	}
	if len(grounds) != 2 {
		b.t.Errorf("bright and dark are %v", grounds)
	}
}

// isOwn has pages of others reach for it.
func (b *browser) isOwn(url, port string) {
	b.t.Helper()
	// Another port of the same name is another origin, and so is a name that
	// leads to this one's address. Each tries what it may.
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>hostile</title><body><iframe src=%[1]q></iframe><img src=%[1]q><link rel=stylesheet href="%[1]sstyle.css">`, url)
	}))
	defer hostile.Close()
	_, other, _ := net.SplitHostPort(hostile.Listener.Addr().String())
	for _, from := range []string{"http://127.0.0.1:" + other, "http://mojoup-node.localhost:" + other, "http://" + foreign + ":" + other} {
		b.do(chromedp.Navigate(from), chromedp.WaitReady(chromedp.CSS("iframe")))
		got := b.text(`(() => { try { return document.querySelector('iframe').contentDocument.body.innerText } catch (e) { return 'refused' } })()`)
		styled := b.text("String(document.styleSheets.length && getComputedStyle(document.body).display)")
		if strings.Contains(got, "Agents") || styled == "grid" {
			b.t.Errorf("%s reads %q", from, got)
		}
		for _, mode := range []string{"cors", "no-cors"} {
			fetched := b.text(fmt.Sprintf(`fetch(%q, {mode: %q}).then(async r => r.type + (await r.text())).catch(() => 'refused')`, url, mode))
			if fetched != "refused" && fetched != "opaque" {
				b.t.Errorf("%s fetches %q", from, fetched)
			}
		}
	}
	// Rebinding: the name of somebody else's is this machine now.
	b.do(chromedp.Navigate("http://"+foreign+":"+port+"/"), chromedp.WaitVisible(chromedp.CSS("h1")))
	if got := b.text("document.body.innerText"); strings.Contains(got, "Agents") || !strings.Contains(got, "this page has one address: "+url) {
		b.t.Errorf("under another name the page shows %q", got)
	}
	b.do(chromedp.Navigate("http://127.0.0.1:"+port+"/"), chromedp.WaitVisible(chromedp.CSS("h1")))
	if got := b.text("document.body.innerText"); strings.Contains(got, "Agents") {
		b.t.Errorf("by its number the page shows %q", got)
	}
	_, _ = b.saw()
}

// link follows the page's one link, from the keyboard, as the page is without
// JavaScript.
func (b *browser) link() {
	b.t.Helper()
	url, _ := b.page()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("a")))
	b.detached("sh", "-c", "exec sleep 301")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.Search(`//h2[text()="Sessions (2)"]`)))
}

// page is the page's address, as status tells it, and its port.
func (r *rig) page() (url, port string) {
	r.t.Helper()
	said, err := r.command("", nil, "status", "--json")
	r.must(err)
	var s api.Status
	r.must(json.Unmarshal([]byte(said), &s))
	_, port, _ = strings.Cut(strings.Trim(strings.TrimPrefix(s.Node.Page, "http://"), "/"), ":")
	if port == "" {
		r.t.Fatalf("status says of the page %q, %q", s.Node.Page, s.Node.NoPage)
	}
	return s.Node.Page, port
}

// detached starts a session that goes on until the node ends.
func (r *rig) detached(args ...string) {
	r.t.Helper()
	if said, err := r.command("", nil, append([]string{"run", "--detach", "--repo", r.repo, "--"}, args...)...); err != nil {
		r.t.Fatalf("starting a session: %v: %s", err, said)
	}
}
