package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// LabelProbe marks what is made for a moment, to try something or to look into
// an image, and says by whom: [Mark].
const LabelProbe = "mojoup.probe"

// Mark names this process and its user, as no other one on this machine is named
// until it is started anew.
func Mark() string { return fmt.Sprintf("%d-%s-%d", os.Getpid(), began(os.Getpid()), os.Getuid()) }

// Orphan reports whether a mark is of this user, or this is root, and the process
// that it names is no more. What is no mark, as the first versions made it, is
// nobody's.
func Orphan(mark string) bool {
	f := strings.Split(mark, "-")
	if len(f) != 3 {
		return false
	}
	pid, err := strconv.Atoi(f[0])
	mine := os.Getuid() == 0 || f[2] == strconv.Itoa(os.Getuid())
	return err == nil && pid > 0 && mine && began(pid) != f[1]
}

// began is when a process began, as the kernel counts; see proc_pid_stat(5).
func began(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	const startTime = 19 // counted from after the name
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) <= startTime {
		return ""
	}
	return f[startTime]
}

// There reports whether this process can have made anything in Docker: that its
// socket is there and may be used, not that anybody answers at it.
func (d *Daemon) There() bool {
	at, err := url.Parse(d.c.DaemonHost())
	if err != nil || at.Scheme != "unix" {
		return err == nil
	}
	f, err := os.OpenFile(at.Path, os.O_WRONLY, 0)
	if err == nil {
		_ = f.Close()
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

// Labelled finds the containers that bear a label, whatever it says, in whatever
// state.
func (d *Daemon) Labelled(ctx context.Context, label string) ([]Container, error) {
	return d.list(ctx, filters.NewArgs(filters.Arg("label", label)))
}

// Tidy removes the containers that processes of this user, or of anybody where
// this is root, made for a moment and did not live to remove.
func (d *Daemon) Tidy(ctx context.Context) (did []string, err error) {
	if !d.There() {
		return nil, nil
	}
	found, err := d.Labelled(ctx, LabelProbe)
	errs := []error{err}
	for _, c := range found {
		if !Orphan(c.Labels[LabelProbe]) {
			continue
		}
		if err := d.Remove(ctx, c.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		did = append(did, "removed the container "+Short(c.ID)+", which a process that has died made to try something")
	}
	return did, errors.Join(errs...)
}

// Short is an id as people know it.
func Short(id string) string { return id[:min(len(id), 12)] }

// createWithin bounds the making of a container. Docker may be busy.
const createWithin = 2 * time.Minute

// probe makes a container that is to be removed again in any case. Who asked may
// give up meanwhile: without an answer nobody would know what there is to remove.
func (d *Daemon) probe(ctx context.Context, c *container.Config, h *container.HostConfig) (id string, err error) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), createWithin)
	defer cancel()
	c.Labels = map[string]string{LabelProbe: Mark()}
	made, err := d.api(patient).ContainerCreate(patient, c, h, nil, nil, "")
	if err != nil {
		return "", asNotFound(err)
	}
	return made.ID, nil
}
