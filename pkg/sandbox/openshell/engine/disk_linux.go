package engine

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// lookEvery is how often the scratch of a sandbox with a limit is measured.
	lookEvery = time.Second
	// idleFor is how much longer than it took the next look is put off: whoever
	// makes a million files must not keep a processor busy with counting them.
	idleFor = 10
)

// measure ends the sandbox once its home and other scratch hold more than they may.
// No mount of a gateway's can bound them: its tmpfs belongs to root, nothing can be
// run from it before Docker 27, and Docker makes what is mounted below it as root.
func (b *box) measure(ctx context.Context) {
	limit := b.spec.Limits.Disk
	if limit <= 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	b.owned.Go(func() {
		next := time.NewTimer(lookEvery)
		defer next.Stop()
		for {
			select {
			case <-b.gone:
				return
			case <-b.ending:
				return
			case <-next.C:
			}
			begun := time.Now()
			if used := usage(filepath.Join(b.stage.dir, scratchDir)); used > limit {
				b.overfull(ctx, used, limit)
				return
			}
			next.Reset(max(lookEvery, idleFor*time.Since(begun)))
		}
	})
}

func (b *box) overfull(ctx context.Context, used, limit int64) {
	why := fmt.Sprintf("its home and other scratch directories held %d bytes, and the disk limit is %d", used, limit)
	b.full.Store(&why)
	b.log.Warn("ending a sandbox that is over its disk limit", "bytes", used, "limit", limit)
	if err := b.e.o.Docker.Kill(ctx, b.docker); err != nil {
		b.log.Warn("ending the container", "error", err)
	}
}

// usage is how much of the disk all files below dir take, each counted once. What
// cannot be looked at is left out, and no link is followed.
func usage(dir string) (bytes int64) {
	type file struct{ device, inode uint64 }
	linked := map[file]bool{}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // gone meanwhile, or closed
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if st.Nlink > 1 {
			this := file{st.Dev, st.Ino}
			if linked[this] {
				return nil
			}
			linked[this] = true
		}
		bytes += st.Blocks * 512
		return nil
	})
	return bytes
}
