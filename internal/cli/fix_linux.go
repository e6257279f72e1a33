package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/program"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// A fix is one change that doctor may make: a program to run, and the one that
// takes it back.
type fix struct {
	What string   `json:"what"`
	Do   []string `json:"do"`
	Undo []string `json:"undo"`
}

// fixes are what would help, of the few changes that harm nobody. Whether
// something listens at an address is asked of listens.
func (h here) fixes(p Process, r capability.Report, listens func(endpoint string) bool) []fix {
	var out []fix
	if m := cgroup.ManagerOf(os.DirFS("/"), p.Getenv("XDG_RUNTIME_DIR"), p.Getenv("USER"), p.UID); m.Runs && !m.Lingers {
		out = append(out, fix{"let the person's services go on after logout",
			[]string{"loginctl", "enable-linger"}, []string{"loginctl", "disable-linger"}})
	}
	_, err := h.discover()
	if errors.Is(err, openshell.NotRegistered) && !failed(r, capability.NameCLI) && listens(product.DefaultEndpoint) {
		out = append(out, fix{"register the OpenShell gateway that answers at " + product.DefaultEndpoint,
			[]string{product.Program, "gateway", "add", product.DefaultEndpoint, "--local", "--name", product.Program},
			[]string{product.Program, "gateway", "remove", product.Program}})
	}
	// An image that is there and unfit is the person's own, and stays as it is.
	if image := h.setImage(); image != "" && is(r, capability.NameImage, capability.Warn) && !failed(r, capability.NameDocker) {
		out = append(out, fix{"have Docker fetch the image of sessions", []string{"docker", "pull", image}, []string{"docker", "rmi", image}})
	}
	return out
}

func failed(r capability.Report, name string) bool { return is(r, name, capability.Fail) }

func is(r capability.Report, name string, state capability.State) bool {
	i := slices.IndexFunc(r.Checks, func(c capability.Check) bool { return c.Name == name })
	return i >= 0 && r.Checks[i].State == state
}

// listens reports whether something takes connections at a URL of this machine.
func listens(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// fixesPath is where what was changed is kept, so that it can be taken back.
func (h here) fixesPath() string { return filepath.Join(h.paths.State, "fixes.json") }

// fix shows what would be changed, asks, and does it.
func (h here) fix(ctx context.Context, p Process, r capability.Report, yes bool) error {
	say := talk{w: p.Stderr}
	all := h.fixes(p, r, listens)
	if len(all) == 0 {
		say.line("there is nothing that --fix could mend: see what each check says")
		return nil
	}
	for _, f := range all {
		say.line("would %s: %s", f.What, strings.Join(f.Do, " "))
	}
	if !yes {
		if !isTerminal(p.Stdin) {
			return fault.Usage("nobody can be asked here").WithHint("say --yes")
		}
		if !agreed(ctx, p, "Do that?") {
			return nil
		}
	}
	for _, f := range all {
		if err := h.carryOut(ctx, f); err != nil {
			return err
		}
		say.line("done: %s (to take it back: mojoup-node doctor --undo)", f.What)
	}
	return nil
}

// undoFixes takes back what --fix has done, the newest first.
func (h here) undoFixes(ctx context.Context, p Process) error {
	say := talk{w: p.Stderr}
	done, err := h.remembered()
	if err != nil {
		return err
	}
	if len(done) == 0 {
		say.line("--fix has changed nothing here")
		return nil
	}
	for len(done) > 0 {
		f := done[len(done)-1]
		if err := runFix(ctx, f.Undo); err != nil {
			return err
		}
		done = done[:len(done)-1]
		if err := h.write(done); err != nil {
			return err
		}
		say.line("taken back: %s", f.What)
	}
	return nil
}

// carryOut does it and writes it down, in this order: taking back what was not
// done would undo somebody else's.
func (h here) carryOut(ctx context.Context, f fix) error {
	if err := runFix(ctx, f.Do); err != nil {
		return err
	}
	return h.remember(f)
}

// How long a fix may take: one that fetches an image, and any other.
const (
	fetchFixWithin = time.Hour
	fixWithin      = time.Minute
)

func runFix(ctx context.Context, argv []string) error {
	within := fixWithin
	if slices.Contains(argv, "pull") {
		within = fetchFixWithin
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it had not ended after %s", within))
	defer cancel()
	cmd := program.Command(ctx, argv...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := program.Ended(ctx, cmd.Run()); err != nil {
		return fault.Negative("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

func (h here) remembered() (done []fix, err error) {
	text, err := os.ReadFile(h.fixesPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &done)
	}
	if err != nil {
		return nil, fault.Unknown("reading what --fix has done: %w", err)
	}
	return done, nil
}

func (h here) remember(f fix) error {
	done, err := h.remembered()
	if err != nil {
		return err
	}
	return h.write(append(done, f))
}

func (h here) write(done []fix) error {
	text, err := json.MarshalIndent(done, "", "  ")
	if err != nil {
		return fault.Unknown("keeping what --fix has done: %w", err)
	}
	if err := os.MkdirAll(h.paths.State, 0o700); err != nil {
		return fault.Unknown("keeping what --fix has done: %w", err)
	}
	if err := os.WriteFile(h.fixesPath(), append(text, '\n'), 0o600); err != nil {
		return fault.Unknown("keeping what --fix has done: %w", err)
	}
	return nil
}
