package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/engine"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// examine asks everything about this machine. Thorough tries what takes
// seconds too, for somebody who waits for the answer.
func (h here) examine(ctx context.Context, e capability.Engine, thorough bool) capability.Report {
	host := capability.ThisHost(capability.Options{})
	asker := &openshellAsker{here: h}
	defer asker.close()
	host.CLIVersion, host.Gateway, host.Image, host.Binds = cliVersion, asker.answer, asker.image, asker.binds
	if thorough {
		host.Served = h.served(ctx)
		host.Reach = asker.reach
		host.Limit = thoroughWithin
	}
	return capability.Examine(ctx, host, e)
}

// served reports whether a system node serves this person.
func (h here) served(ctx context.Context) bool {
	s, err := h.client().Status(ctx)
	return err == nil && s.Node.System && os.Getuid() != 0
}

// thoroughWithin bounds each check of doctor: a container has to start.
const thoroughWithin = 15 * time.Second

func cliVersion(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking for its version: %w", err)
	}
	words := strings.Fields(string(out))
	if len(words) == 0 {
		return "", errors.New("it says nothing when asked for its version")
	}
	return words[len(words)-1], nil
}

// An openshellAsker asks one gateway and one Docker several questions.
type openshellAsker struct {
	here here

	once   sync.Once
	client openshell.Client
	err    error
}

func (a *openshellAsker) gateway(ctx context.Context) (openshell.Client, error) {
	a.once.Do(func() { a.client, a.err = a.here.gateway(context.WithoutCancel(ctx)) })
	return a.client, a.err
}

func (a *openshellAsker) close() {
	a.once.Do(func() { a.err = errors.New("BUG: asked too late") })
	if a.client != nil {
		_ = a.client.Close()
	}
}

func (a *openshellAsker) answer(ctx context.Context) (capability.GatewayAnswer, error) {
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

func (a *openshellAsker) image(ctx context.Context) (string, error) {
	d, err := a.here.docker()
	if err != nil {
		return "", err
	}
	defer d.Close()
	ref := a.here.sandboxImage()
	i, err := engine.CheckImage(ctx, d, ref)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d MB", ref, i.Size/1_000_000), nil
}

// binds asks for a sandbox of an image that there is not, with a mount, and
// deletes it again: nothing of it ever starts.
func (a *openshellAsker) binds(ctx context.Context) error {
	c, err := a.gateway(ctx)
	if err != nil {
		return err
	}
	dir := a.here.staging()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := openshell.Name(a.here.nodeID(), "trial-"+rand.Text())
	uid := max(os.Getuid(), 1)
	record, err := c.Create(ctx, openshell.Request{
		Name: name, Image: "mojoup.invalid/none:none", Command: []string{"none"}, UID: uid, GID: uid,
		Labels: map[string]string{openshell.LabelNode: a.here.nodeID(), openshell.LabelUser: strconv.Itoa(os.Getuid()), daemon.LabelProbe: daemon.Mark()},
		Mounts: []openshell.Mount{{Source: dir, Target: dir, ReadOnly: true}}, ReadOnly: []string{dir},
	})
	if err != nil {
		return err
	}
	// Its end must not hang on the patience of whoever asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), thoroughWithin)
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

// reach runs a container that reads a file of this node and connects to it, as
// a sandbox will.
func (a *openshellAsker) reach(ctx context.Context) error {
	c, err := a.gateway(ctx)
	if err != nil {
		return err
	}
	d, err := a.here.docker()
	if err != nil {
		return err
	}
	defer d.Close()
	network, at := "none", netip.MustParseAddr("127.0.0.1")
	if c.Gateway().Generation == openshell.V00 {
		network = product.Network
		if at, err = d.Bridge(ctx, network); err != nil {
			return &sightError{"the gateway's network " + network + " is not there: " + err.Error(), "start the gateway, which makes it"}
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
			_ = conn.SetDeadline(time.Now().Add(thoroughWithin))
			_, _ = conn.Write([]byte(word + "\n"))
			_ = conn.Close()
		}
	}()
	dir := filepath.Join(a.here.staging(), "trial-"+rand.Text())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "word"), []byte(word+"\n"), 0o644); err != nil {
		return err
	}
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	script := "cat /trial/word || echo blind"
	if network != "none" {
		script += "; timeout 5 bash -c 'read -r line </dev/tcp/" + at.String() + "/" + port + " && echo $line' || echo deaf"
	}
	said, _, err := d.Try(ctx, a.here.sandboxImage(), network, []string{dir + ":/trial:ro"}, "bash", "-c", script)
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
