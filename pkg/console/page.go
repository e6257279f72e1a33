package console

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// PageNode is what the page needs of the node behind it. As with [Node], an
// error that wraps an *api.Problem is shown.
type PageNode interface {
	Status(ctx context.Context, c Caller) (api.Status, error)
	// Checks is what was found out about this machine.
	Checks(ctx context.Context, c Caller) (api.Checks, error)
}

// PageOptions of a PageServer.
type PageOptions struct {
	Node   PageNode     // required
	Logger *slog.Logger // nil discards
}

// A PageServer shows the node page: what status says, and what the checks of
// the start found. It changes nothing.
//
// Whoever asks is the user who made the connection ([Visitor]); what they may
// see is the node's to say. A page of somebody else's in the person's browser
// gets nothing: one name is answered only, and no request that another origin
// has made.
type PageServer struct {
	http http.Server
	node PageNode
	log  *slog.Logger
}

// NewPageServer makes one. Everything that it reads and writes is bounded.
func NewPageServer(o PageOptions) *PageServer {
	s := &PageServer{node: o.Node, log: o.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.http = http.Server{
		Handler: s,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			v, ok := conn.(*Visitor)
			if !ok {
				v = &Visitor{} // not known
			}
			return context.WithValue(ctx, visitorKey{}, v)
		},
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0), // what a browser does wrong is nobody's to mend
	}
	// Who asks is a matter of the connection: each question is asked on its own.
	s.http.SetKeepAlivesEnabled(false)
	return s
}

type visitorKey struct{}

// Serve answers the visitors of a listener until Close; then it returns nil.
func (s *PageServer) Serve(ln net.Listener) error {
	if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends it at once. Browsers open connections that they may need later:
// waiting for an end of them would keep a node from its own.
func (s *PageServer) Close() { _ = s.http.Close() }

//go:embed page.css
var pageStyle []byte

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"visible": visible, "lasting": lasting, "clock": clock, "words": func(w []string) string { return strings.Join(w, " ") },
	"started": started, "state": stateWord,
}).Parse(pageText))

// pagePolicy lets the page's own style in and nothing else.
const pagePolicy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers one question.
func (s *PageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      pagePolicy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	} {
		w.Header().Set(name, value)
	}
	v := r.Context().Value(visitorKey{}).(*Visitor)
	if err := s.admit(w, r, v); err != nil {
		s.refuse(w, err)
		return
	}
	switch r.URL.Path {
	case "/":
		if err := s.show(w, r, v.Caller); err != nil {
			s.refuse(w, err)
		}
	case "/style.css":
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(pageStyle)
	default:
		s.refuse(w, &refusal{http.StatusNotFound, &api.Problem{Code: "unknown-page", Sentence: "there is no such page here"}})
	}
}

// A refusal is a problem with the status that HTTP has for it.
type refusal struct {
	status int
	*api.Problem
}

func (r *refusal) Unwrap() error { return r.Problem }

// admit refuses what did not come from a person who typed the page's address or
// followed a link to it.
func (s *PageServer) admit(w http.ResponseWriter, r *http.Request, v *Visitor) error {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	host := pageHost(at)
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	followed := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	switch {
	// A name of somebody else's that leads to this machine is their origin in
	// the browser, whatever it shows.
	case host == "" || r.Host != host:
		return &refusal{http.StatusMisdirectedRequest, &api.Problem{Code: "not-this-host", Sentence: "this page has one address: http://" + host + "/"}}
	case origin != "" && origin != "http://"+host, site != "" && site != "none" && site != "same-origin" && !followed:
		return &refusal{http.StatusForbidden, &api.Problem{Code: "not-allowed", Sentence: "another page may not read this one"}}
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		return &refusal{http.StatusMethodNotAllowed, &api.Problem{Code: "not-allowed", Sentence: "this page can be read only"}}
	case v.Refused != nil:
		return v.Refused
	case !v.Known:
		return &refusal{http.StatusForbidden, &api.Problem{Code: "caller-unknown", Sentence: "the node cannot tell who is calling",
			Hint: "it shows this page to users of this machine, on this machine"}}
	}
	return nil
}

// shownPage is what the template sees.
type shownPage struct {
	Now     time.Time
	Refused *api.Problem // and nothing else, or nil
	Status  api.Status
	Checks  api.Checks
	Mend    string // what would make the verdict positive
}

// Kind is the verdict in one word.
func (p shownPage) Kind() string {
	switch v := p.Status.Verdict; {
	case v.Able:
		return "able"
	case v.Pending:
		return "pending"
	case v.Engine == "off":
		return "off"
	}
	return "unable"
}

func (s *PageServer) show(w http.ResponseWriter, r *http.Request, c Caller) error {
	p := shownPage{Now: time.Now()}
	var err error
	if p.Status, err = s.node.Status(r.Context(), c); err != nil {
		return err
	}
	if p.Checks, err = s.node.Checks(r.Context(), c); err != nil {
		return err
	}
	for _, check := range p.Checks.Checks {
		if p.Mend == "" && check.Reason != "" && check.Reason == p.Status.Verdict.Reason {
			p.Mend = check.Mend
		}
	}
	return s.write(w, http.StatusOK, p)
}

// write renders the whole page before its first byte is sent.
func (s *PageServer) write(w http.ResponseWriter, status int, p shownPage) error {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("BUG: rendering the page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
	return nil
}

func (s *PageServer) refuse(w http.ResponseWriter, err error) {
	p := handler{log: s.log}.problem(err)
	code := status(p)
	if r, ok := errors.AsType[*refusal](err); ok {
		code = r.status
	}
	if err := s.write(w, code, shownPage{Now: time.Now(), Refused: p}); err != nil {
		s.log.Error("request failed", "err", err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// visible shows what a browser would hide, or obey: a name that turns the
// direction of what follows it is not what it seems.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if r != ' ' && !unicode.IsGraphic(r) {
			fmt.Fprintf(&b, "\\u{%x}", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// stateWord is how a check came out, as doctor says it.
func stateWord(state string) string {
	switch state {
	case "warn":
		return "warning"
	case "fail":
		return "failed"
	}
	return state
}

// lasting is how long something has lasted.
func lasting(since, now time.Time) string {
	switch d := now.Sub(since); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// started is how long a start took. A wait for a slot is no part of it.
func started(s api.Session) string {
	ms := 0.0
	for _, st := range s.Stages {
		if st.Name != api.StageQueue {
			ms += st.Milliseconds
		}
	}
	return fmt.Sprintf("%.0f ms", ms)
}
