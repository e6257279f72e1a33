package config

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// A Follower reads settings again when their file has changed, for those that
// take effect at once. It is safe for concurrent use.
type Follower struct {
	origin Origin
	clock  func() time.Time

	mu    sync.Mutex // guards what follows
	last  *Config
	seen  fs.FileInfo // of the file, nil where there is none
	blank time.Time   // since when there is none, or nothing in it; zero where there is
}

// rewriting is how long a file may be in the middle of being written anew: removed
// first, or emptied. What it said holds meanwhile, or a moment in which it says
// nothing would switch on what somebody has switched off.
const rewriting = 5 * time.Second

// Follow follows an origin of which c was read.
func (o Origin) Follow(c *Config) *Follower { return &Follower{origin: o, clock: time.Now, last: c} }

// Now is the settings as they are now. With an error they are those of before.
func (f *Follower) Now() (*Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.origin.File) // before it is read: what comes later is seen the next time
	if err != nil {
		info = nil
	}
	if same(info, f.seen) {
		f.blank = time.Time{}
		return f.last, nil
	}
	if f.rewritten(info, err) {
		return f.last, nil
	}
	now, err := f.origin.Load()
	if err != nil {
		return f.last, err
	}
	f.last, f.seen = now, info
	return now, nil
}

// rewritten reports whether the file may be about to be written. f.mu is held.
func (f *Follower) rewritten(info fs.FileInfo, err error) bool {
	now := f.clock()
	switch {
	case info != nil && info.Size() > 0, err != nil && !errors.Is(err, fs.ErrNotExist):
		f.blank = time.Time{}
		return false
	case f.blank.IsZero():
		f.blank = now
	}
	return now.Sub(f.blank) < rewriting
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
