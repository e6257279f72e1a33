package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// denialText is what a denied program, and the agent that reads its output,
// gets to see. It must be short, say that it is a decision and not a fault,
// and leave one thing to do.
func denialText(v Verdict) string { return denialTextFor(v, question(v)) }

// pushDenialText is the same about one reference of a push.
func pushDenialText(v Verdict, ref string) string {
	q := urlOf(v)
	if strings.Trim(ref, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") != "" {
		return denialTextFor(v, argument(q))
	}
	return denialTextFor(v, "--push "+argument(ref)+" "+argument(strings.TrimSuffix(q, receivePack)))
}

// argument is a word of a command that a person may paste into a shell on the host,
// whatever whoever asked made it of. It is cut before it is quoted.
func argument(s string) string { return fault.Quoted(printable(s, 300)) }

func denialTextFor(v Verdict, question string) string {
	return denialTextWith(v, fmt.Sprintf("Do not work around it. If you need it, tell the person you work for and quote the id. They can ask\n  mojoup-node policy explain %s\nand change %s.\n", question, document(v)))
}

// neverPushed is what there is to do about a push that no policy would let through.
const neverPushed = "No change of the policy allows it: what may be pushed are new references, and branches that move forward from what the server has. Fetch and push what builds on that, or under another name. If you need just this, tell the person you work for and quote the id: they can push it outside of the session.\n"

func denialTextWith(v Verdict, next string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "This request was denied by policy. It is a decision, not a fault; trying again or another way gives the same answer.\n\n")
	fmt.Fprintf(&b, "  request  %s\n", described(v))
	fmt.Fprintf(&b, "  reason   %s\n", orNone(v.Reason))
	if v.Rule != "" {
		fmt.Fprintf(&b, "  rule     %s\n", ruleOf(v))
	} else if v.Layer != "" {
		fmt.Fprintf(&b, "  layer    %s\n", v.Layer)
	}
	if usual := usualMethod(v.Method); usual != v.Method {
		fmt.Fprintf(&b, "  note     methods are compared exactly, and %s is another one\n", usual)
	}
	fmt.Fprintf(&b, "  id       %s\n\n", v.ID)
	if v.Signed {
		fmt.Fprintf(&b, "Requests that are signed with a key (AWS) cannot be made with what stands for the key in a session, wherever they go. Tell the person you work for. They can\n  %s\n", secrets.SigningHelp)
		return b.String()
	}
	if v.Misused != "" {
		b.WriteString(aboutKey(v))
		return b.String()
	}
	b.WriteString(next)
	return b.String()
}

// aboutKey is what there is to do about a key that may not go there, or nowhere.
func aboutKey(v Verdict) string {
	where := "The person you work for can look at\n  " + secrets.ListedBy(v.Misused) + "\n"
	const gone = "What was withdrawn works nowhere; no other way leads past that. "
	signIn := strings.HasPrefix(v.Misused, secrets.SignIn)
	switch {
	case v.Withdrawn && signIn:
		return gone + where + "and sign in again on the host: then it works in this session again.\n"
	case v.Withdrawn:
		return gone + where + "and give it again where it is kept, or with `mojoup-node secret set " + argument(v.Misused) + "`: then it works in this session again.\n"
	case signIn:
		return "A key is meant for one service only. Do not send it elsewhere. " + where
	}
	return "A key is meant for one service only. Do not send it elsewhere. " + where + "and say with `mojoup-node secret set` where it may go.\n"
}

// question is what explains the verdict when it is put to `policy explain`.
func question(v Verdict) string {
	method := usualMethod(v.Method) // no rule can name it in another way
	if method == "" || method == http.MethodGet || method == http.MethodConnect {
		return argument(urlOf(v))
	}
	return "--method " + argument(method) + " " + argument(urlOf(v))
}

// usualMethod is a method as it is usually spelt, where it only differs by its case.
func usualMethod(method string) string {
	switch up := strings.ToUpper(method); up {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return up
	}
	return method
}

// document is what a person would change to allow it.
func document(v Verdict) string {
	switch v.Layer {
	case "", policy.LayerRepository:
		return ".mojoup/policy.json"
	case policy.LayerCommandLine:
		return "the file given with --policy"
	}
	return "the policy of the " + v.Layer
}

// refusedText is for a request that no policy was asked about.
func refusedText(v Verdict) string {
	return fmt.Sprintf("mojoup-node did not accept this request: %s.\nid %s\n", v.Reason, v.ID)
}

// denialPhrase is a reason phrase (RFC 9112, section 4): one line of plain
// ASCII, because it stands in a status line.
func denialPhrase(v Verdict) string {
	return printable(fmt.Sprintf("Denied by policy, id %s: %s", v.ID, orNone(v.Reason)), 200)
}

func described(v Verdict) string {
	where := joinHostPort(v.Host, v.Port)
	if v.Method == "" || v.Path == "" {
		return where
	}
	return printable(v.Method+" "+where+v.Path, 300)
}

func ruleOf(v Verdict) string {
	if v.Layer == "" {
		return v.Rule
	}
	return fmt.Sprintf("%s (%s)", v.Rule, v.Layer)
}

func urlOf(v Verdict) string {
	scheme, host := "https", joinHostPort(v.Host, v.Port)
	switch v.Port {
	case portHTTP:
		scheme, host = "http", bracket(v.Host)
	case portHTTPS:
		host = bracket(v.Host)
	}
	path := v.Path
	if !strings.HasPrefix(path, "/") {
		path = "/"
	}
	return printable(scheme+"://"+host+path, 300)
}

func orNone(reason string) string {
	if reason == "" {
		return "no rule allows it"
	}
	return reason
}

// printable keeps a line a line.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(s) > most {
		s = s[:most-3] + "..."
	}
	return s
}

// answer writes a text of our own.
func answer(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// Unreachable says in one sentence, without addresses, why a host could not be
// reached, as a session is told. This is a fault of the network or the host, not
// a denial.
func Unreachable(host string, err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	var encoding *encodingError
	switch {
	case errors.As(err, &encoding):
		return host + " " + encoding.Error()
	case errors.As(err, &dns) && dns.IsNotFound && oneLabel(host):
		return fmt.Sprintf("%s does not exist: no such name. It stands in no hosts file, and no search domain is put behind a name: the policy and the request need the whole one.", host)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("%s does not exist: no such name.", host)
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s could not be resolved.", host)
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s shows a certificate of an authority that this node does not trust. docs/policy.md says under \"Whom the node trusts\" how to add one.", host)
	case errors.As(err, &name):
		return fmt.Sprintf("%s shows a certificate that is not for this name.", host)
	case errors.As(err, &cert):
		return fmt.Sprintf("%s shows a certificate that is not valid.", host)
	case errors.As(err, &record):
		return fmt.Sprintf("%s does not speak TLS on this port.", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("%s refused the connection.", host)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return fmt.Sprintf("there is no way from this node to %s.", host)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return fmt.Sprintf("%s did not answer in time.", host)
	}
	return fmt.Sprintf("the connection to %s failed.", host)
}
