//go:build linux

package gatewaytest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/inside"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// mounts are those of a container that runs program first.
func (d *driver) mounts(b *box, program string) (mounts []mount.Mount, err error) {
	mounts = []mount.Mount{
		{Type: mount.TypeBind, Source: filepath.Dir(program), Target: filepath.Dir(inside.Program), ReadOnly: true},
		{Type: mount.TypeBind, Source: filepath.Join(b.host, "etc"), Target: filepath.Dir(inside.ConfigPath), ReadOnly: true},
		{Type: mount.TypeBind, Source: filepath.Join(b.host, "run"), Target: inside.ControlDir},
	}
	if d.g.o.Machine {
		shared, err := machineDirs()
		if err != nil {
			return nil, err
		}
		for _, dir := range shared {
			mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: dir, Target: dir, ReadOnly: true})
		}
	}
	if d.g.o.Programs != "" {
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: d.g.o.Programs, Target: ownDir + "/bin", ReadOnly: true})
	}
	for _, m := range b.Mounts {
		if m.Type == "tmpfs" {
			mounts = append(mounts, mount.Mount{Type: mount.TypeTmpfs, Target: m.Target, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: m.Size, Mode: os.FileMode(m.Mode)}})
			continue
		}
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return mounts, nil
}

func (d *driver) start(ctx context.Context, b *box, host string) error {
	program, err := supervisor()
	if err != nil {
		return err
	}
	mounts, err := d.mounts(b, program)
	if err != nil {
		return err
	}
	pids := int64(2048)
	hostConfig := &container.HostConfig{
		Mounts: mounts,
		// For the first process only: whatever runs gives all of it up.
		CapAdd:      []string{"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"},
		SecurityOpt: []string{"apparmor=unconfined"},
		NetworkMode: container.NetworkMode(network.NetworkNone),
		Resources:   container.Resources{PidsLimit: &pids, NanoCPUs: nanoCPUs(b.CPU), Memory: size(b.Memory)},
	}
	if d.g.o.Generation == V00 {
		hostConfig.NetworkMode = product.Network
		hostConfig.ExtraHosts = []string{product.HostAlias + ":" + host}
	}
	labels := b.labels()
	labels[Label] = d.g.name
	made, err := d.docker.ContainerCreate(ctx, &container.Config{Image: b.Image, Entrypoint: []string{inside.Program, "main"}, User: "0:0",
		Env: []string{"OPENSHELL_SANDBOX_ID=" + b.id, "OPENSHELL_SANDBOX=" + b.Name}, Labels: labels},
		hostConfig, nil, nil, product.ContainerPrefix+b.Workspace+"--"+b.Name+"-"+b.id)
	if err != nil {
		return err
	}
	d.g.update(b, func() { b.unit = made.ID })
	d.g.tell(b, "Created", "Created Docker container %q", product.ContainerPrefix+b.Workspace+"--"+b.Name+"-"+b.id)
	d.g.update(b, func() { b.message = "Container created" })
	if err := d.docker.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		return err
	}
	d.g.tell(b, "Started", "Started Docker container %q", product.ContainerPrefix+b.Workspace+"--"+b.Name+"-"+b.id)
	d.g.update(b, func() {
		if b.phase == provisioning {
			b.reason, b.message = "SupervisorNotConnected", "Backend ready; waiting for supervisor session"
		}
	})
	d.g.work.Go(func() { d.attend(b, d.g.view(b)) })
	return nil
}

// attend notices a container that ends or is taken away.
func (d *driver) attend(b *box, now box) {
	end, errs := d.docker.ContainerWait(d.g.ctx, now.unit, container.WaitConditionNotRunning)
	select {
	case <-end:
	case <-errs:
	}
	if d.g.ctx.Err() != nil {
		return
	}
	// What the first process said last may still be on its way. One that never
	// said anything is not waited for: this is the next connection then.
	if conn, err := net.Dial("unix", wake(now)); err == nil {
		conn.Close()
	}
	<-now.heard
	d.g.update(b, func() {
		if b.run == now.run && (b.phase == provisioning || b.phase == ready) {
			b.phase, b.reason, b.message = failed, "ContainerExited", "Container exited"
		}
	})
}

// there reports whether a box that had a container still has it.
func (d *driver) there(b *box) bool {
	v := d.g.view(b)
	if v.unit == "" {
		return true
	}
	_, err := d.docker.ContainerInspect(d.g.ctx, v.unit)
	return !errdefs.IsNotFound(err)
}

// remove takes a box's container away.
func (d *driver) remove(b *box) {
	v := d.g.view(b)
	if v.unit != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := d.docker.ContainerRemove(ctx, v.unit, container.RemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			d.t.Logf("double: removing a container: %v", err)
		}
	}
	if v.host != "" {
		os.RemoveAll(v.host)
	}
}

func nanoCPUs(cpu string) int64 {
	if m, ok := strings.CutSuffix(cpu, "m"); ok {
		n, _ := strconv.ParseInt(m, 10, 64)
		return n * 1_000_000
	}
	n, _ := strconv.ParseFloat(cpu, 64)
	return int64(n * 1e9)
}

func size(memory string) int64 {
	for suffix, unit := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 1e3, "M": 1e6, "G": 1e9} {
		if n, ok := strings.CutSuffix(memory, suffix); ok {
			v, _ := strconv.ParseInt(n, 10, 64)
			return v * unit
		}
	}
	v, _ := strconv.ParseInt(memory, 10, 64)
	return v
}
