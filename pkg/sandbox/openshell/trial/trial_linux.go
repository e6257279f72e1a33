package trial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/program"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/engine"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// CLIVersion asks the command line at a path for its version. Where that is a
// script that leaves something running, the answer is not waited for any longer.
func CLIVersion(ctx context.Context, path string) (string, error) {
	cmd := program.Command(ctx, path, "--version")
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.Output()
	if err := program.Ended(ctx, err); err != nil {
		return "", fmt.Errorf("asking for its version: %w", err)
	}
	words := strings.Fields(string(out))
	if len(words) == 0 {
		return "", errors.New("it says nothing when asked for its version")
	}
	return words[len(words)-1], nil
}

// Options of a Trial. All are required.
type Options struct {
	// Discover finds the gateway of the person, and Connect reaches it.
	Discover func() (openshell.Registration, error)
	Connect  func(context.Context) (openshell.Client, error)
	Docker   func() (*daemon.Daemon, error)
	Image    string        // of sessions
	Fetch    bool          // a session that needs the image fetches it
	Node     string        // as the engine's labels name it
	Staging  string        // directory of this node that Docker is to see
	Within   time.Duration // bounds what a trial of ours does, and its end
}

// A Trial asks one gateway and one Docker several questions. Its methods may be
// called at the same time; Close ends it.
type Trial struct {
	o Options

	once   sync.Once
	client openshell.Client
	err    error
}

// New makes one, and asks nothing yet.
func New(o Options) *Trial { return &Trial{o: o} }

func (a *Trial) gateway(ctx context.Context) (openshell.Client, error) {
	a.once.Do(func() { a.client, a.err = a.o.Connect(context.WithoutCancel(ctx)) })
	return a.client, a.err
}

// Close ends the connection to the gateway, where there is one.
func (a *Trial) Close() {
	a.once.Do(func() { a.err = errors.New("BUG: asked too late") })
	if a.client != nil {
		_ = a.client.Close()
	}
}

// Registered says which gateway is the person's, as the engine will find it.
func (a *Trial) Registered() (found string, err error) {
	r, err := a.o.Discover()
	switch {
	case err != nil:
		return "", err
	case r.Name == "":
		return r.Endpoint + " (from " + product.EnvEndpoint + "); registered", nil
	}
	return r.Name + " at " + r.Endpoint + "; registered", nil
}

// Answer is what the gateway says of itself.
func (a *Trial) Answer(ctx context.Context) (capability.GatewayAnswer, error) {
	c, err := a.gateway(ctx)
	if err != nil {
		return capability.GatewayAnswer{}, err
	}
	g := c.Gateway()
	out := capability.GatewayAnswer{Version: g.Version, Family: string(g.Generation)}
	info, err := c.Info(ctx)
	switch {
	case errors.Is(err, openshell.Forbidden):
		return out, nil
	case err != nil:
		return out, err
	}
	out.Drivers = []string{}
	for _, d := range info.Drivers {
		out.Drivers = append(out.Drivers, d.Name)
	}
	return out, nil
}

// Image looks into the image of sessions.
func (a *Trial) Image(ctx context.Context) (string, error) {
	d, err := a.o.Docker()
	if err != nil {
		return "", err
	}
	defer d.Close()
	ref := a.o.Image
	i, err := engine.CheckImage(ctx, d, ref)
	var unfit *engine.ImageError
	if a.o.Fetch && errors.As(err, &unfit) && unfit.Missing() {
		if d.Offered(ctx, ref) == nil {
			return "", &capability.Later{Sentence: fmt.Sprintf("the image %q: Docker does not have it yet, and fetches it when a session first needs it", ref),
				Advice: "to have it now: mojoup-node doctor --fix, or docker pull " + ref}
		}
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d MB", ref, i.Size/1_000_000), nil
}

// Binds asks for a sandbox of an image that there is not, with a mount, and
// deletes it again: nothing of it ever starts.
func (a *Trial) Binds(ctx context.Context) error {
	c, err := a.gateway(ctx)
	if err != nil {
		return err
	}
	dir := a.o.Staging
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := openshell.Name(a.o.Node, "trial-"+rand.Text())
	uid := max(os.Getuid(), 1)
	record, err := c.Create(ctx, openshell.Request{
		Name: name, Image: "mojoup.invalid/none:none", Command: []string{"none"}, UID: uid, GID: uid,
		Labels: map[string]string{openshell.LabelNode: a.o.Node, openshell.LabelUser: strconv.Itoa(os.Getuid()), daemon.LabelProbe: daemon.Mark()},
		Mounts: []openshell.Mount{{Source: dir, Target: dir, ReadOnly: true}}, ReadOnly: []string{dir},
	})
	if err != nil {
		return err
	}
	// Its end must not hang on the patience of whoever asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.o.Within)
	defer cancel()
	if err := c.Delete(ctx, record.Ref); err != nil {
		return err
	}
	return c.Gone(ctx, record.Ref)
}

// A sightError says what a container does not see or reach of this node.
type sightError struct{ problem, mend string }

func (e *sightError) Error() string { return e.problem }
func (e *sightError) Hint() string  { return e.mend }

// Reach runs a container that reads a file of this node and connects to it, as
// a sandbox will.
func (a *Trial) Reach(ctx context.Context) error {
	c, err := a.gateway(ctx)
	if err != nil {
		return err
	}
	d, err := a.o.Docker()
	if err != nil {
		return err
	}
	defer d.Close()
	network, at := "none", netip.MustParseAddr("127.0.0.1")
	if c.Gateway().Generation == openshell.V00 {
		network = product.Network
		if at, err = d.Bridge(ctx, network); errors.Is(err, daemon.ErrNotFound) {
			return openshell.WithoutNetwork(network, err)
		} else if err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(at.String(), "0"))
	if err != nil {
		return &sightError{fmt.Sprintf("this node cannot listen on %s, where sandboxes would reach it", at), "is Docker on this machine, and not in a virtual one?"}
	}
	defer ln.Close()
	word := rand.Text()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(a.o.Within))
			_, _ = conn.Write([]byte(word + "\n"))
			_ = conn.Close()
		}
	}()
	dir := filepath.Join(a.o.Staging, "trial-"+rand.Text())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "word"), []byte(word+"\n"), 0o644); err != nil {
		return err
	}
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	// Without what it complains of: Docker keeps no order between the two outputs.
	script := "exec 2>/dev/null; cat /trial/word || echo blind"
	if network != "none" {
		// A bash may be built without /dev/tcp.
		script += "; timeout 5 bash -c 'read -r line </dev/tcp/" + at.String() + "/" + port + " && echo $line'" +
			" || timeout 5 nc " + at.String() + " " + port + " </dev/null || echo deaf"
	}
	if _, err := d.Image(ctx, a.o.Image); a.o.Fetch && errors.Is(err, daemon.ErrNotFound) {
		return &capability.Later{Sentence: "not tried: Docker does not have the image of sessions yet", Advice: "fetch it, and ask doctor again"}
	}
	said, _, err := d.Try(ctx, a.o.Image, network, []string{dir + ":/trial:ro"}, "bash", "-c", script)
	if err != nil {
		return err
	}
	return judgeSight(strings.Fields(said), word, network != "none", at.String())
}

// judgeSight reads what the container said.
func judgeSight(said []string, word string, connects bool, at string) error {
	if len(said) == 0 || said[0] != word {
		return &sightError{"Docker does not see the files that this node sees", "use the Docker of this machine, not one of a virtual machine or of a snap, and keep the node's state below your home"}
	}
	if connects && (len(said) < 2 || said[1] != word) {
		return &sightError{"a container cannot reach this node at " + at + ": a firewall of this machine is in the way",
			"ufw: sudo ufw allow in on br-+ to " + at + "; firewalld: sudo firewall-cmd --permanent --zone=trusted --add-source=" + at + "/16 && sudo firewall-cmd --reload"}
	}
	return nil
}
