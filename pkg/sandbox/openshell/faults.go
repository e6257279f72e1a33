package openshell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// What to do, where more than one failure says it.
const (
	adviceStart   = "systemctl --user start " + product.ServiceUnit + ", and see: " + product.CommandStatus
	adviceLogs    = "see what it says: journalctl --user -u " + product.ServiceUnit
	adviceRestart = "then restart the gateway, which disturbs the sandboxes that run"
)

// failed says in words why a call came to nothing. Answered is whether the
// other end said anything at all: the same code may come from it or from the
// connection to it.
func (l *link) failed(ctx context.Context, reg Registration, err error, answered bool) error {
	answered = answered && !broke(err)
	if !answered && status.Code(err) == codes.Unavailable {
		l.dead.Store(true) // the connection itself learns of it a moment later
	}
	at := reg.title()
	fail := func(code Code, advice, format string, args ...any) error {
		return &Error{Code: code, Sentence: fmt.Sprintf(format, args...), Advice: advice, Err: err}
	}
	said := plain(status.Convert(err).Message())
	switch status.Code(err) {
	case codes.Canceled:
		return &Error{Code: Cancelled, Sentence: "asking " + at + " was given up", Err: context.Canceled}
	case codes.DeadlineExceeded:
		return fail(NoAnswer, adviceLogs, "%s took the question and gave no answer in time", at)
	case codes.Unavailable:
		if why := l.why.Load(); why != nil {
			return undialled(reg, *why)
		}
		if answered {
			return fail(Refused, adviceLogs, "%s cannot do that now: %s", at, said)
		}
		if ctx.Err() != nil {
			return fail(NoAnswer, adviceLogs, "%s did not answer in time", at)
		}
		if strings.Contains(said, "preface") || strings.Contains(said, "frame") {
			return fail(NotAGateway, "look at what listens there", "what listens at %s is no gateway: it does not speak HTTP/2", reg.Endpoint)
		}
		return fail(Unreachable, adviceStart, "%s went away", at)
	case codes.ResourceExhausted:
		if strings.Contains(said, "larger than max") {
			return fail(TooLarge, "", "%s answered with more than %d bytes", at, mostMessage)
		}
		return fail(Overloaded, "try again in a moment", "%s takes no more: %s", at, said)
	case codes.Unauthenticated:
		return fail(Unauthenticated, loginAdvice(reg), "%s does not accept who we are: %s", at, said)
	case codes.PermissionDenied:
		return fail(Forbidden, "ask who runs the gateway for the role of a user of the workspace "+reg.Workspace, "%s does not allow this: %s", at, said)
	case codes.Unimplemented:
		return fail(VersionUnsupported, "look at what listens there: "+product.CommandStatus, "what listens at %s does not know the question: %s", reg.Endpoint, said)
	case codes.NotFound:
		return fail(NotFound, "", "%s has no such sandbox", at)
	case codes.InvalidArgument:
		return fail(BadRequest, "", "%s does not take the request: %s", at, said)
	case codes.Unknown, codes.Internal:
		switch {
		case strings.Contains(said, "unmarshal"):
			return fail(Nonsense, adviceLogs, "%s answered with something that cannot be read", at)
		case strings.Contains(said, "content-type") || strings.Contains(said, "HTTP status"):
			return fail(NotAGateway, "look at what listens there", "what listens at %s is no gateway: it answers as a web server does", reg.Endpoint)
		}
	}
	return fail(Refused, adviceLogs, "%s refuses: %s", at, said)
}

// broke reports whether an error is the connection's own, which says so in
// its text only.
func broke(err error) bool {
	said := messageOf(err)
	for _, words := range []string{"error reading from server", "transport is closing", "closing transport", "keepalive ping failed", "connection error", "connection is draining"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// undialled says why a connection could not be made.
func undialled(reg Registration, err error) error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	at := reg.title()
	fail := func(code Code, advice, format string, args ...any) error {
		return &Error{Code: code, Sentence: fmt.Sprintf(format, args...), Advice: advice, Err: err}
	}
	var (
		unknown  x509.UnknownAuthorityError
		name     x509.HostnameError
		invalid  x509.CertificateInvalidError
		record   tls.RecordHeaderError
		alert    tls.AlertError
		timeout  net.Error
		noLookup *net.DNSError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(Unreachable, adviceStart, "nothing listens at %s, where %s should be", reg.Endpoint, at)
	case errors.As(err, &noLookup):
		return fail(Unreachable, "", "the host of %s cannot be found: %s", reg.Endpoint, noLookup.Name)
	case errors.As(err, &unknown):
		return fail(BadCredentials, "register the gateway anew: "+product.CommandAdd+" "+reg.Endpoint+" --local",
			"%s shows a certificate that was not issued by the authority of its registration", at)
	case errors.As(err, &name):
		return fail(BadCredentials, "register the gateway at an address that its certificate names", "the certificate of %s is not for %s", at, reg.Endpoint)
	case errors.As(err, &invalid):
		return fail(BadCredentials, "make new certificates with "+product.CommandCertificates+", and restart it", "the certificate of %s is not valid: %s", at, plain(invalid.Error()))
	case errors.As(err, &record):
		return fail(NotAGateway, "look at what listens there", "what listens at %s does not speak TLS, as it is registered to", reg.Endpoint)
	case errors.As(err, &alert):
		return fail(Unauthenticated, loginAdvice(reg), "%s does not accept our certificate: %s", at, plain(alert.Error()))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fail(NoAnswer, adviceLogs, "%s did not answer in time", at)
	}
	return fail(Unreachable, adviceStart, "%s cannot be reached: %s", at, plain(err.Error()))
}

func loginAdvice(reg Registration) string {
	if reg.Auth == AuthOIDC {
		return product.CommandLogin + " " + reg.Name
	}
	return "register the gateway anew: " + product.CommandAdd + " " + reg.Endpoint + " --local"
}

// ended is for a caller who waits no longer.
func (c *client) ended(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: NoAnswer, Sentence: c.reg.title() + " did not answer in time", Advice: adviceLogs, Err: err}
	}
	return &Error{Code: Cancelled, Sentence: "asking " + c.reg.title() + " was given up", Err: err}
}

// sayer is the status that the gateway, or the connection to it, ended with.
func sayer(err error) codes.Code {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code()
	}
	return codes.OK
}

// messageOf is the text that came with it.
func messageOf(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return ""
}

// unanswered reports whether the request may have been carried out.
func unanswered(err error) bool {
	return errors.Is(err, Unreachable) || errors.Is(err, NoAnswer) || errors.Is(err, Cancelled) || errors.Is(err, TooLarge)
}

// unsent reports whether the request never left: the connection had ended
// before.
func unsent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == Unreachable && e.Err != nil && strings.Contains(e.Err.Error(), errSpent.Error())
}

// refusal recognises why a gateway makes no sandbox.
func (c *client) refusal(r Request, err error) error {
	switch sayer(err) {
	case codes.FailedPrecondition, codes.InvalidArgument, codes.Internal, codes.Unknown:
		if e := c.recognise(r.Image, messageOf(err)); e != nil {
			e.Err = err
			return e
		}
	}
	return err
}

// Compiled by who needs them: their counted repetitions take milliseconds,
// which every command of this program would wait for.
var (
	quotedPath  = pattern(`'(/[^']{0,1000})'`)
	missingPath = pattern(`bind source path does not exist: ([^\n]{1,1000})`)
	// Of Docker before and since release 27, each for a network that is to be made.
	noRange      = pattern(`non-overlapping IPv4 address pool|address pools have been fully subnetted`)
	noAddress    = pattern(`no available IPv4 addresses on this network`)
	noNetwork    = pattern(`network (\S{1,100}) not found`)
	imageTrouble = pattern(`(?i)no such image|pull access denied|manifest unknown|not found: manifest|failed to pull|repository does not exist|invalid reference format|image .{0,300}(is not present|not present locally)`)
)

func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// recognise finds the causes that have a mend of their own, in the texts of
// either generation. Their wording may change, so it looks for few words.
func (c *client) recognise(image, said string) *Error {
	at := c.reg.title()
	has := func(words ...string) bool {
		for _, w := range words {
			if !strings.Contains(said, w) {
				return false
			}
		}
		return true
	}
	switch {
	case missingPath().MatchString(said):
		path := plain(missingPath().FindStringSubmatch(said)[1])
		e := &Error{Code: SourceMissing, Sentence: fmt.Sprintf("%s does not see %s", at, path),
			Advice: "it must be there for the gateway's own process and for Docker, at the same path"}
		if strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/") {
			e.Advice = "the gateway's unit has a /tmp of its own (PrivateTmp): keep repositories elsewhere, or switch that off with systemctl --user edit " + product.ServiceUnit
		}
		return e
	case has("allow_driver_config"):
		return &Error{Code: DriverConfigOff, Sentence: at + " takes no mounts from its clients",
			Advice: "set " + product.SettingDriverConfig + " in its gateway.toml, " + adviceRestart}
	case has("resource admission"):
		return &Error{Code: AdmissionOn, Sentence: at + " admits no mounts of the host's directories",
			Advice: "set " + product.SettingAdmission + " in its gateway.toml, which holds for all of its users, " + adviceRestart}
	case has("enable_bind_mounts"):
		return &Error{Code: BindsOff, Sentence: at + " does not allow bind mounts, without which a repository cannot be at its own path",
			Advice: "set " + product.SettingBinds + " in its gateway.toml, " + adviceRestart}
	case has("mount target", "reserved"), has("mount target", "workspace"):
		target := "a path"
		if m := quotedPath().FindStringSubmatch(said); m != nil {
			target = plain(m[1])
		}
		return &Error{Code: TargetReserved, Sentence: fmt.Sprintf("%s keeps %s for itself, so nothing can be mounted there", at, target),
			Advice: "move the repository, or use an image with another working directory"}
	case noRange().MatchString(said):
		return &Error{Code: NoNetwork, Sentence: fmt.Sprintf("Docker has no free range of addresses for a network that %s wants", at),
			Advice: "docker network prune takes away the networks that nobody uses; default-address-pools in /etc/docker/daemon.json makes room for more"}
	case noAddress().MatchString(said):
		return &Error{Code: NoNetwork, Sentence: fmt.Sprintf("Docker has no free address in the network of %s", at),
			Advice: "end what is not needed: docker network inspect " + product.Network + " names what is in it"}
	case noNetwork().MatchString(said):
		return WithoutNetwork(word(noNetwork().FindStringSubmatch(said)[1]), nil)
	case imageTrouble().MatchString(said):
		return imageMissing(image, said)
	case has("run_as_user"), has("uid 0"), has("UID 0"):
		return &Error{Code: RootRefused, Sentence: at + " does not run sandboxes as this user: " + plain(said),
			Advice: "sessions of root need the native engine: node.sandbox.engine native"}
	}
	return nil
}

// WithoutNetwork says that Docker does not have the network of a gateway's
// sandboxes.
func WithoutNetwork(name string, err error) *Error {
	return &Error{Code: NoNetwork, Err: err, Sentence: fmt.Sprintf("Docker has no network %s, which the gateway of %s makes when it starts", name, product.Name),
		Advice: "restart the gateway; where Docker has no free range of addresses for it, docker network prune takes away the networks that nobody uses"}
}

func imageMissing(image, said string) *Error {
	return &Error{Code: ImageMissing, Sentence: fmt.Sprintf("the image %s is not there and could not be pulled: %s", plain(image), plain(said)),
		Advice: "see docker pull, or set node.sandbox.image to another one"}
}

// mostRequest is what a gateway takes in one message, with room for framing.
const mostRequest = 1<<20 - 4<<10

func small(in proto.Message) error {
	if n := proto.Size(in); n > mostRequest {
		return &Error{Code: TooLarge, Sentence: fmt.Sprintf("the request for a sandbox has %d bytes, %d is the most that a gateway takes", n, mostRequest),
			Advice: "fewer mounts, or a smaller environment"}
	}
	return nil
}
