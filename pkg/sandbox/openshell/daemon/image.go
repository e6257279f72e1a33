package daemon

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/stdcopy"
)

// An Image is what is known of one that Docker has.
type Image struct {
	ID      string
	WorkDir string
	User    string
	Entry   []string // what it begins every command with
	Size    int64
	holds   map[string]string // where each really is, "" where it is not there
}

// Holds reports whether a path that was looked for is there.
func (i Image) Holds(p string) bool { return i.holds[p] != "" }

// Real is where a path that was looked for leads, or "" where nothing is there.
// Links on the way to its last part are not followed.
func (i Image) Real(p string) string { return i.holds[p] }

// HoldsProgram reports whether a program that was looked for is in one of the
// usual directories.
func (i Image) HoldsProgram(name string) bool {
	for _, dir := range programDirs {
		if i.Holds(path.Join(dir, name)) {
			return true
		}
	}
	return false
}

var programDirs = []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"}

// Programs are the paths at which programs may lie, for [Daemon.Image].
func Programs(names ...string) (paths []string) {
	for _, name := range names {
		for _, dir := range programDirs {
			paths = append(paths, path.Join(dir, name))
		}
	}
	return paths
}

// Image looks at an image of Docker's, and whether it holds these paths. What
// was found is kept: an image that has an ID does not change.
func (d *Daemon) Image(ctx context.Context, ref string, paths ...string) (Image, error) {
	got, err := d.inspectImage(ctx, ref)
	if err != nil {
		return Image{}, fmt.Errorf("asking Docker for the image %s: %w", ref, asNotFound(err))
	}
	d.mu.Lock()
	known, ok := d.images[got.ID]
	d.mu.Unlock()
	if !ok {
		known = Image{ID: got.ID, Size: got.Size, holds: map[string]string{}}
		if got.Config != nil {
			known.WorkDir, known.User, known.Entry = got.Config.WorkingDir, got.Config.User, got.Config.Entrypoint
		}
	}
	var missing []string
	for _, p := range paths {
		if _, asked := known.holds[p]; !asked {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 && ok {
		return known, nil
	}
	found, err := d.lookInto(ctx, got.ID, missing)
	if err != nil {
		return Image{}, err
	}
	maps.Copy(found, known.holds)
	known.holds = found
	d.mu.Lock()
	d.images[got.ID] = known
	d.mu.Unlock()
	return known, nil
}

func (d *Daemon) inspectImage(ctx context.Context, ref string) (image.InspectResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return d.api(ctx).ImageInspect(ctx, ref)
}

// lookInto makes a container that never runs, and asks what lies in it.
func (d *Daemon) lookInto(ctx context.Context, id string, paths []string) (_ map[string]string, err error) {
	found := map[string]string{}
	if len(paths) == 0 {
		return found, nil
	}
	made, err := d.probe(ctx, &container.Config{Image: id, Cmd: []string{"none"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("looking into the image: %w", err)
	}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx), made)) }()
	look := func(p string) error {
		// Each by itself: a busy machine takes its time for every one of dozens.
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		is, err := d.api(ctx).ContainerStatPath(ctx, made, p)
		switch {
		case errdefs.IsNotFound(err):
			found[p] = ""
		case err != nil:
			return fmt.Errorf("looking for %s in the image: %w", p, err)
		default:
			found[p] = cmp.Or(is.LinkTarget, p)
		}
		return nil
	}
	for _, p := range paths {
		// Each look mounts the image anew. Many paths lie below few directories,
		// most of which no image has.
		above := topOf(p)
		if _, asked := found[above]; !asked {
			if err := look(above); err != nil {
				return nil, err
			}
		}
		if found[above] == "" {
			found[p] = ""
		} else if _, asked := found[p]; !asked {
			if err := look(p); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// topOf is the directory of the third level in which a path lies, or the path.
func topOf(p string) string {
	parts := strings.SplitN(p, "/", 5)
	return strings.Join(parts[:min(len(parts), 4)], "/")
}

// A Change is a program that makes one image of another.
type Change struct {
	Argv  []string
	Env   []string // KEY=VALUE
	Binds []string // as docker run -v spells them
}

// Change runs a program as root in a container of an image, with this machine's
// network, and makes what came of it an image without a command or a directory
// of its own. The environment is the program's alone: an image that kept it would
// have this machine's proxies. Every line that the program says is told.
func (d *Daemon) Change(ctx context.Context, from, to string, c Change, say func(string)) (err error) {
	argv := slices.Concat([]string{"env"}, c.Env, c.Argv)
	is, err := d.Image(ctx, from)
	if err != nil {
		return err
	}
	// Nothing that is not needed: a commit keeps an entry point and a user that
	// the container had. OpenShell obeys neither.
	config := &container.Config{Image: from, Cmd: argv}
	if len(is.Entry) > 0 {
		config.Entrypoint, config.Cmd = argv[:1], argv[1:]
	}
	if is.User != "" {
		config.User = "0:0"
	}
	made, err := d.probe(ctx, config, &container.HostConfig{NetworkMode: "host", Binds: c.Binds})
	if err != nil {
		return fmt.Errorf("making a container of %s: %w", from, err)
	}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx), made)) }()
	ended, failed := d.api(ctx).ContainerWait(ctx, made, container.WaitConditionNextExit)
	if err := d.api(ctx).ContainerStart(ctx, made, container.StartOptions{}); err != nil {
		return fmt.Errorf("starting %s: %w", argv[0], err)
	}
	if err := d.follow(ctx, made, say); err != nil {
		return err
	}
	select {
	case e := <-ended:
		if e.StatusCode != 0 {
			return fmt.Errorf("%s ended with %d", c.Argv[0], e.StatusCode)
		}
	case err := <-failed:
		return fmt.Errorf("waiting for %s: %w", argv[0], err)
	}
	_, err = d.api(ctx).ContainerCommit(ctx, made, container.CommitOptions{Reference: to, Changes: []string{`CMD ["/bin/bash"]`, "LABEL " + LabelProbe + "=image"}})
	if err != nil {
		return fmt.Errorf("making the image %s: %w", to, err)
	}
	return nil
}

// follow tells what a container says until it ends.
func (d *Daemon) follow(ctx context.Context, id string, say func(string)) error {
	r, err := d.api(ctx).ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return fmt.Errorf("reading what the container says: %w", err)
	}
	defer r.Close()
	in, out := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(out, out, r)
		_ = out.CloseWithError(err)
	}()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		say(lines.Text())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return lines.Err()
}

// Import makes an image of a file system in a tar archive.
func (d *Daemon) Import(ctx context.Context, ref string, archive io.Reader) error {
	r, err := d.api(ctx).ImageImport(ctx, image.ImportSource{Source: archive, SourceName: "-"}, ref, image.ImportOptions{})
	if err != nil {
		return fmt.Errorf("importing the image %s: %w", ref, err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(r, 1<<20)); err != nil {
		return fmt.Errorf("importing the image %s: %w", ref, err)
	}
	return nil
}
