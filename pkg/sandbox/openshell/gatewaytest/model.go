//go:build linux

package gatewaytest

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Phases, by the numbers of both generations.
const (
	provisioning = 1
	ready        = 2
	failed       = 3
	deleting     = 4
	completed    = 9
)

// Request is what one CreateSandbox asked for, in either generation.
type Request struct {
	Name, Workspace, Image string
	Labels, TemplateLabels map[string]string
	Env                    map[string]string
	Command                []string
	Mounts                 []Mount
	CPU, Memory            string
	Policy                 Policy
	RequestID              string
}

// Mount is one of a request's.
type Mount struct {
	Type, Source, Target string
	ReadOnly             bool
	Size, Mode           int64 // of type tmpfs
}

// Policy is a request's policy.
type Policy struct {
	Given               bool
	Workdir             bool
	ReadOnly, ReadWrite []string
	Landlock            string
	User, Group         string
	Rules               []Rule
}

// Rule is one rule of a policy with one endpoint.
type Rule struct {
	Host          string
	Port          uint32
	Skip, Enforce bool
	Programs      []string
}

// box is one sandbox as the gateway knows it.
type box struct {
	Request
	id       string
	created  time.Time
	phase    int32
	reason   string
	message  string
	instance string
	exit     *int32
	version  int // of its record
	steps    []step
	proxy    string
	uid, gid int
	workdir  string
	host     string // directory that the container shares with the double
	unit     string // id of the container
	run      int    // how often it was started anew
	// heard is closed once nothing more comes from this run's first process.
	heard chan struct{}
}

// step is one event of the driver.
type step struct{ reason, message string }

// update changes a record and tells who watches.
func (g *Gateway) update(b *box, change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	b.version++
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Gateway) tell(b *box, reason, format string, args ...any) {
	g.update(b, func() { b.steps = append(b.steps, step{reason, fmt.Sprintf(format, args...)}) })
}

// fail ends a box's life with a reason.
func (g *Gateway) fail(b *box, reason, message string) {
	g.update(b, func() {
		if b.phase != deleting {
			b.phase, b.reason, b.message = failed, reason, message
		}
	})
}

// view copies a record, so that it can be read without the lock.
func (g *Gateway) view(b *box) box {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := *b
	c.steps = slices.Clone(b.steps)
	return c
}

func (g *Gateway) byName(workspace, name string) (*box, error) {
	if workspace == "" && g.o.Generation == V01 {
		return nil, status.Error(codes.InvalidArgument, "workspace_scope is required")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.boxes {
		if b.Name == name && b.Workspace == workspace {
			return b, nil
		}
	}
	return nil, status.Error(codes.NotFound, "sandbox not found")
}

func (g *Gateway) byID(id string) (*box, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.boxes[id]; b != nil {
		return b, nil
	}
	return nil, status.Error(codes.NotFound, "sandbox not found")
}

var goodName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// create takes a request, or refuses it as a real gateway does.
func (g *Gateway) create(r Request) (*box, error) {
	if err := g.validate(&r); err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(r.Policy.User)
	gid, _ := strconv.Atoi(r.Policy.Group)
	b := &box{Request: r, id: newUUID(), created: time.Now(), phase: provisioning, reason: "Starting", message: "Docker container is starting", uid: uid, gid: gid}
	g.mu.Lock()
	for _, other := range g.boxes {
		if other.Name == r.Name && other.Workspace == r.Workspace {
			if g.o.Generation == V01 && r.RequestID != "" && other.RequestID == r.RequestID {
				g.mu.Unlock()
				return other, nil // replayed
			}
			g.mu.Unlock()
			return nil, status.Errorf(codes.AlreadyExists, "sandbox '%s' already exists", r.Name)
		}
	}
	g.boxes[b.id] = b
	g.requests = append(g.requests, r)
	g.mu.Unlock()
	g.work.Go(func() { g.driver.provision(g.ctx, b) })
	return b, nil
}

func (g *Gateway) validate(r *Request) error {
	bad := func(format string, args ...any) error { return status.Errorf(codes.InvalidArgument, format, args...) }
	if r.Workspace == "" {
		if g.o.Generation == V01 {
			return bad("workspace_scope.workspace is required")
		}
		r.Workspace = product.DefaultWorkspace
	}
	if r.Name == "" {
		r.Name = "sb-" + randomHex(4)
	}
	if len(r.Name) > 19 || !goodName.MatchString(r.Name) || strings.Contains(r.Name, "--") {
		return bad("invalid sandbox name '%s'", r.Name)
	}
	for key := range r.Env {
		if strings.HasPrefix(key, product.EnvPrefix) {
			return bad("environment key '%s' is reserved", key)
		}
	}
	for _, id := range []string{r.Policy.User, r.Policy.Group} {
		if n, err := strconv.ParseUint(id, 10, 32); r.Policy.Given && (err != nil || n == 0) {
			return bad("process.run_as_user must be 'sandbox' or a non-root numeric id, got '%s'", id)
		}
	}
	return g.validateMounts(r.Mounts)
}

func (g *Gateway) validateMounts(mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	refuse := func(text string) error { return status.Error(codes.FailedPrecondition, text) }
	if g.o.NoDriverConfig {
		return refuse("caller driver config is disabled; set allow_driver_config = true in [openshell.drivers.docker]")
	}
	binds := slices.ContainsFunc(mounts, func(m Mount) bool { return m.Type == "bind" })
	if g.o.NoBinds && binds {
		return refuse("docker bind mounts require enable_bind_mounts = true in [openshell.drivers.docker]")
	}
	if g.o.Admission && binds {
		return refuse("host bind or image mount cannot be attached while resource admission is enabled")
	}
	seen := map[string]bool{}
	for _, m := range mounts {
		known := m.Type == "bind" && path.IsAbs(m.Source) || m.Type == "tmpfs" && m.Source == "" && m.Size > 0
		if !known || !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/" || seen[m.Target] {
			return status.Errorf(codes.InvalidArgument, "invalid docker driver_config: mount at '%s'", m.Target)
		}
		seen[m.Target] = true
		for _, reserved := range product.Reserved {
			if m.Target == reserved || strings.HasPrefix(m.Target, reserved+"/") || strings.HasPrefix(reserved, m.Target+"/") {
				return status.Errorf(codes.InvalidArgument, "mount target '%s' conflicts with reserved OpenShell path '%s'", m.Target, reserved)
			}
		}
	}
	return nil
}

// remove begins a deletion; the box is gone a moment later.
func (g *Gateway) remove(b *box) {
	g.update(b, func() { b.phase = deleting })
	g.work.Go(func() {
		if g.o.Faults.Stuck {
			return
		}
		for keeps := g.o.Faults.Keeps; keeps != nil && keeps() && g.ctx.Err() == nil; {
			time.Sleep(10 * time.Millisecond)
		}
		g.driver.remove(b)
		g.mu.Lock()
		delete(g.boxes, b.id)
		close(g.changed)
		g.changed = make(chan struct{})
		g.mu.Unlock()
	})
}

// list finds the boxes of a workspace by labels, in a fixed order.
func (g *Gateway) list(workspace, selector string) ([]*box, error) {
	want := map[string]string{}
	for pair := range strings.SplitSeq(selector, ",") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "invalid label selector '%s'", pair)
		}
		want[key] = value
	}
	if workspace == "" {
		workspace = product.DefaultWorkspace
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []*box
	for _, b := range g.boxes {
		fits := b.Workspace == workspace
		for key, value := range want {
			fits = fits && b.Labels[key] == value
		}
		if fits {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *box) int { return a.created.Compare(b.created) })
	return found, nil
}

// watch calls out at every change until that fails or the box is gone.
func (g *Gateway) watch(ctx context.Context, b *box, status, events bool, out func(*box, *step) error) error {
	version, told := -1, 0
	for {
		g.mu.Lock()
		changed, gone := g.changed, g.boxes[b.id] == nil
		g.mu.Unlock()
		now := g.view(b)
		if g.o.Faults.Silent {
			<-ctx.Done()
			return ctx.Err()
		}
		for ; events && told < len(now.steps); told++ {
			if err := out(nil, &now.steps[told]); err != nil {
				return err
			}
		}
		if status && now.version != version && !gone {
			version = now.version
			if err := out(&now, nil); err != nil {
				return err
			}
		}
		if gone {
			return nil // without a word
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mountsOf reads a driver's configuration.
func mountsOf(s *structpb.Struct) []Mount {
	var out []Mount
	for _, v := range s.GetFields()[product.Driver].GetStructValue().GetFields()["mounts"].GetListValue().GetValues() {
		f := v.GetStructValue().GetFields()
		readOnly := true // where nothing is said
		if v, ok := f["read_only"]; ok {
			readOnly = v.GetBoolValue()
		}
		out = append(out, Mount{f["type"].GetStringValue(), f["source"].GetStringValue(), f["target"].GetStringValue(), readOnly,
			int64(f["size_bytes"].GetNumberValue()), int64(f["mode"].GetNumberValue())})
	}
	return out
}

func limitsOf(s *structpb.Struct) (cpu, memory string) {
	f := s.GetFields()["limits"].GetStructValue().GetFields()
	return f["cpu"].GetStringValue(), f["memory"].GetStringValue()
}

// labels of a container: the driver's own, and the template's.
func (b *box) labels() map[string]string {
	labels := maps.Clone(b.TemplateLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{product.LabelManagedBy: product.ManagedBy, product.LabelID: b.id, product.LabelName: b.Name, product.LabelWorkspace: b.Workspace})
	return labels
}

func newUUID() string {
	h := randomHex(16)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}
