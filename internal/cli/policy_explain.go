package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/egress/dialguard"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

func printExplanation(pen pen, x explained) {
	switch {
	case x.Refused:
		pen.printf("denied: %s\n", visible(x.Node))
	case x.Decision.Allowed:
		pen.printf("allowed: %s\n", visible(x.Decision.Reason))
	default:
		pen.printf("denied: %s\n", visible(x.Decision.Reason))
	}
	if x.Node != "" && !x.Refused {
		pen.printf("note: %s\n", visible(x.Node))
	}
	if len(x.Layers) == 0 && !x.Decision.Allowed && !x.Refused {
		pen.printf("  a repository asks for hosts in .mojoup/policy.json, --tool adds those of an agent tool\n")
	}
	pen.printf("%s", approvalLine(x.Approval))
	for _, l := range x.Layers {
		answer := "refuses"
		if l.Allowed {
			answer = "allows"
		}
		pen.printf("  %s %s: %s", visible(l.Layer), answer, visible(l.Reason))
		if l.Rule != "" {
			pen.printf(" (%s, %s)", visible(l.Rule), visible(l.Source.String()))
		}
		pen.printf("\n")
	}
}

func newPolicyExplain(p Process) *cobra.Command {
	var o policyOptions
	var method, push string
	cmd := &cobra.Command{
		Use:   "explain URL",
		Short: "say whether a request would be allowed, and by which rule of which layer",
		Long: `Decide a request exactly as the way out of a session would, without sending it.
URL is https://host/path, http://host/path, or host:port for any other connection.
With --push the question is whether git may push a new reference to the
repository at URL; one that is there moves only forward, and a tag not at all.
Exit code 0 where it would be allowed, 1 where not.

Where the policy of the repository asks for what needs your yes, it is said whether
you gave it: until then no session starts there, and the answer is what holds
afterwards.

A name that would be allowed is resolved as for a session: one that leads to a
private address only is denied, unless a rule and the node's setting
node.network.private both open that. Of a node that runs the setting is the one of
its start.`,
		Args: exactly("a URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := parseTarget(args[0], method)
			if err == nil && push != "" {
				req, err = pushTo(req, push)
			}
			if err != nil {
				return err
			}
			e, err := o.compose(cmd.Context(), p)
			if err != nil {
				return err
			}
			x := explained{Explanation: e.Explain(req)}
			if err := x.askWayOut(cmd.Context(), e, req); err != nil {
				return err
			}
			if x.Approval, err = e.approval(cmd.Context(), p); err != nil {
				return err
			}
			if wantsJSON(cmd) {
				if err := printJSON(p.Stdout, x); err != nil {
					return err
				}
			} else {
				printExplanation(newPen(p), x)
			}
			if !x.Decision.Allowed || x.Refused {
				return exitCode(fault.ExitNegative)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&method, "method", "GET", "the method of the request")
	cmd.Flags().StringVar(&push, "push", "", "ask whether git may push this `reference`, in full: refs/heads/NAME")
	cmd.MarkFlagsMutuallyExclusive("method", "push")
	o.flags(cmd)
	addJSON(cmd)
	return cmd
}

// explained is what the layers say, and what the way out says of the address:
// a rule cannot open what the node's settings keep shut.
type explained struct {
	policy.Explanation
	Refused bool   `json:"refused,omitempty"` // by the node, though the layers allow it
	Node    string `json:"node,omitempty"`    // what the node says, in one sentence
	// Approval of what the repository asks for; "" where it could not be asked.
	Approval string `json:"approval,omitempty"`
}

// resolveWithin bounds how long a person waits for a name server.
const resolveWithin = 3 * time.Second

// askWayOut asks what sessions go out by: it has the last word.
func (x *explained) askWayOut(ctx context.Context, c composed, req policy.Request) error {
	if !x.Decision.Allowed {
		return nil
	}
	o := egress.Options{Private: c.in.Private}
	if page, err := netip.ParseAddrPort(c.here.settings.String(config.ConsoleListen)); err == nil {
		o.Own = append(o.Own, page)
	}
	out, err := egress.New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	addrs, err := out.Resolve(ctx, req.Host, req.Port, x.Decision.Addresses)
	if blocked, ok := errors.AsType[*dialguard.BlockedError](err); ok {
		x.Refused, x.Node = true, blocked.Error()
		return nil
	}
	var notes []string
	if err != nil {
		notes = append(notes, "it comes to nothing: "+strings.TrimSuffix(egress.Unreachable(req.Host, err), "."))
	}
	if note := x.opened(addrs, c.in.Private); note != "" {
		notes = append(notes, note)
	}
	if policy.IsInside(req.Host) {
		notes = append(notes, "inside it is the session itself, to which programs go without asking: a service of this machine is called "+policy.HostService)
	}
	x.Node = strings.Join(notes, "; ")
	return nil
}

// opened says what a rule and the node's setting open together: where the request
// leads, or else could.
func (x *explained) opened(addrs []netip.Addr, private []netip.Prefix) string {
	const both = "and the node's setting node.network.private open"
	for _, a := range addrs {
		if class := dialguard.Classify(a); class != dialguard.Public {
			return fmt.Sprintf("%s is a %s address, which %s %s together", a, class, x.Decision.Rule, both)
		}
	}
	ranges := policy.CommonRanges(x.Decision.Addresses, private)
	if len(ranges) == 0 {
		return ""
	}
	return fmt.Sprintf("of addresses that are not public %s %s %s together", x.Decision.Rule, both, strings.Trim(fmt.Sprint(ranges), "[]"))
}

// parseTarget reads what a person calls a request.
func parseTarget(text, method string) (policy.Request, error) {
	bad := func(why string) error {
		return fault.Usage("%q is not a request: %s", text, why).WithHint("for example https://host.example/path or host.example:5432")
	}
	if up := strings.ToUpper(method); up != method && slices.Contains(methods, up) {
		return policy.Request{}, fault.Usage("methods are compared exactly: write %s, not %s", up, method)
	}
	req := policy.Request{Method: method}
	var host, port, path string
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		u, err := url.Parse(text)
		authority := rest
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			authority = rest[:end]
		}
		scheme = strings.ToLower(scheme)
		switch {
		case err != nil || u.Host == "" || u.User != nil || rest == "":
			return req, bad("it does not read as a URL")
		case strings.Contains(authority, "%"):
			return req, bad("a host is not percent-encoded: a session's request to it is refused")
		case scheme == "https":
			req.TLS, port = true, "443"
		case scheme == "http":
			port = "80"
		default:
			return req, bad("only http and https have methods and paths")
		}
		host, path = u.Hostname(), u.EscapedPath()
		if u.Port() != "" || strings.HasSuffix(authority, ":") {
			port = u.Port()
		}
	} else {
		i := strings.LastIndexByte(text, ':')
		if i < 0 {
			return req, bad("it needs a scheme or a port")
		}
		host, port = strings.Trim(text[:i], "[]"), text[i+1:]
		req.Method = ""
	}
	return finishTarget(req, host, port, path, bad)
}

// pushTo is the request by which git pushes a new reference to a repository.
func pushTo(req policy.Request, ref string) (policy.Request, error) {
	if err := policy.CheckRef(ref); err != nil {
		return req, fault.Usage("--push: %w", err)
	}
	if req.Method == "" {
		return req, fault.Usage("--push needs the URL of a repository").WithHint("for example https://host.example/name.git")
	}
	req.Method, req.Ref, req.Change = "POST", ref, policy.ChangeCreate
	req.Path = strings.TrimSuffix(strings.TrimSuffix(req.Path, "/"), "/git-receive-pack") + "/git-receive-pack"
	return req, nil
}

// methods are those that somebody may have written in small letters.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

func finishTarget(req policy.Request, host, port, path string, bad func(string) error) (policy.Request, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || port[0] == '0' {
		return req, bad("the port is no plain number from 1 to 65535")
	}
	req.Port = uint16(n)
	if req.Host, err = policy.NormalHost(host); err != nil {
		return req, bad(err.Error())
	}
	if req.Method == "" {
		return req, nil
	}
	if path == "" {
		path = "/"
	}
	if req.Path, err = policy.NormalPath(path); err != nil {
		return req, bad(err.Error())
	}
	return req, nil
}
