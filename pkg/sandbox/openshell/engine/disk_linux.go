package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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
			switch used, whole := usage(filepath.Join(b.stage.dir, scratchDir), limit); {
			case used > limit:
				b.overfull(ctx, fmt.Sprintf("its home and other scratch directories held %d bytes or more, and the disk limit is %d", used, limit))
				return
			case !whole:
				b.overfull(ctx, fmt.Sprintf("its directories lie too deep to be measured, and the disk limit is %d", limit))
				return
			}
			next.Reset(max(lookEvery, idleFor*time.Since(begun)))
		}
	})
}

func (b *box) overfull(ctx context.Context, why string) {
	b.full.Store(&why)
	b.log.Warn("ending a sandbox that is over its disk limit", "why", why)
	if err := b.e.o.Docker.Kill(ctx, b.docker); err != nil {
		b.log.Warn("ending the container", "err", err)
	}
}

// usage is how much of the disk all that is below dir takes, each file counted
// once, until it is more than most. What cannot be looked at is left out, and no
// link is followed. It is not whole where directories lie too deep to look at.
func usage(dir string, most int64) (bytes int64, whole bool) {
	m := meter{most: most, linked: map[inode]bool{}}
	m.tree(dir, 0)
	return m.bytes, !m.deep
}

type inode struct{ device, number uint64 }

// A meter adds up what files take.
type meter struct {
	bytes, most int64
	linked      map[inode]bool // counted already, of those with several names
	deep        bool
}

const (
	// leastTaken is what a file takes that has nothing in it: a disk holds only so
	// many of them.
	leastTaken = 512
	// longest is how long a path may be, for the kernel takes none of 4,096 bytes:
	// whoever goes down step by step gets deeper. From there on paths begin anew,
	// at an open directory, but not more often than mostBases.
	longest   = 3 << 10
	mostBases = 64
)

func (m *meter) tree(at string, bases int) {
	if len(at) > longest {
		if bases == mostBases {
			m.deep = true
			return
		}
		base, err := os.OpenFile(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return
		}
		defer base.Close()
		at, bases = fmt.Sprintf("/proc/self/fd/%d/.", base.Fd()), bases+1
	}
	for _, name := range m.directory(at) {
		if m.bytes > m.most || m.deep {
			return
		}
		m.tree(at+"/"+name, bases)
	}
}

// directory adds what is in a directory and returns the directories there.
func (m *meter) directory(at string) (dirs []string) {
	d, err := os.OpenFile(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // gone meanwhile, or closed
	}
	defer d.Close()
	for m.bytes <= m.most {
		names, err := d.Readdirnames(512) // never all: there may be millions
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone meanwhile
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				dirs = append(dirs, name)
			} else if st.Nlink > 1 {
				this := inode{st.Dev, st.Ino}
				if m.linked[this] {
					continue
				}
				m.linked[this] = true
			}
			m.bytes += max(st.Blocks*512, leastTaken)
		}
		if err != nil {
			break
		}
	}
	return dirs
}
