package config

import (
	"io/fs"
	"os"
	"sync"
)

// A Follower reads settings again when their file has changed, for those that
// take effect at once. It is safe for concurrent use.
type Follower struct {
	origin Origin

	mu   sync.Mutex // guards what follows
	last *Config
	seen fs.FileInfo // of the file, nil where there is none
}

// Follow follows an origin of which c was read.
func (o Origin) Follow(c *Config) *Follower { return &Follower{origin: o, last: c} }

// Now is the settings as they are now. With an error they are those of before.
func (f *Follower) Now() (*Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.origin.File) // before it is read: what comes later is seen the next time
	if err != nil {
		info = nil
	}
	if same(info, f.seen) {
		return f.last, nil
	}
	now, err := f.origin.Load()
	if err != nil {
		return f.last, err
	}
	f.last, f.seen = now, info
	return now, nil
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
