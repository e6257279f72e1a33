package hostsocket

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Below are the paths at which the sockets lie in one of dirs, sorted. One that
// was bound by a relative name is found where that name leads from one of them.
func Below(all []Socket, dirs []string) []string { return below(all, dirs, parents{}) }

func below(all []Socket, dirs []string, where parents) []string {
	var out []string
	for _, s := range all {
		for _, dir := range dirs {
			path := s.name
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			path = where.of(path)
			if strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") && s.at(path) && !slices.Contains(out, path) {
				out = append(out, path)
			}
		}
	}
	slices.Sort(out)
	return out
}

// parents are where directories really lie, as far as has been asked in one
// look: there are few, and a node asks for every session and every socket.
type parents map[string]string

// of is the path of a socket whose name may lead through links.
func (p parents) of(path string) string {
	dir, base := filepath.Split(path)
	led, asked := p[dir]
	if !asked {
		led, _ = filepath.EvalSymlinks(dir)
		p[dir] = led
	}
	if led == "" {
		return path // it is gone, or not for this process to see
	}
	return filepath.Join(led, base)
}

// at reports whether the file at path is the socket's, and not another one's
// that has taken its name since.
func (s Socket) at(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket && uint32(inodeOf(info)) == s.inode
}

// A Watcher looks for new sockets for as long as somebody wants to know. One
// serves all sessions of a node.
type Watcher struct {
	log  *slog.Logger
	list func() ([]Socket, error)

	mu      sync.Mutex // guards what follows
	watches []*watch
	end     chan struct{} // of the one who looks, nil where nobody does
}

type watch struct {
	dirs  []string
	found func(path string)
	known map[string]bool
}

// New makes a watcher. A nil logger discards.
func New(log *slog.Logger) *Watcher {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Watcher{log: log, list: List}
}

// Watch calls found once for each path in dirs at which a socket lies, but for
// the known ones, until stop is called, which looks once more; after it has
// returned found is not called any more. found must return soon.
func (w *Watcher) Watch(dirs, known []string, found func(path string)) (stop func()) {
	mine := &watch{dirs: dirs, found: found, known: map[string]bool{}}
	for _, path := range known {
		mine.known[path] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = append(w.watches, mine)
	if w.end == nil {
		w.end = make(chan struct{})
		go w.run(w.end)
	}
	return func() {
		w.look(mine)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.watches = slices.DeleteFunc(w.watches, func(o *watch) bool { return o == mine })
		if len(w.watches) == 0 && w.end != nil {
			close(w.end)
			w.end = nil
		}
	}
}

func (w *Watcher) run(end chan struct{}) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(nil)
		case <-end:
			return
		}
	}
}

// look looks once, for one watch or for all.
func (w *Watcher) look(only *watch) {
	all, err := w.list()
	if err != nil {
		w.log.Debug("looking for sockets of the host", "err", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	where := parents{}
	for _, one := range w.watches {
		if only != nil && one != only {
			continue
		}
		for _, path := range below(all, one.dirs, where) {
			if !one.known[path] {
				one.known[path] = true
				one.found(path)
			}
		}
	}
}
