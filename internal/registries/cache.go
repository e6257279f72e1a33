package registries

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// maxAge bounds how long an answer is kept although nothing it came from
// changed: a client may know a default by a way that leaves no file behind.
const maxAge = 24 * time.Hour

// An input is a path that decided, as it was.
type input struct {
	Path string `json:"path"`
	// Size is -1 where nothing was there.
	Size int64 `json:"size"`
	// Changed is the modification time in nanoseconds.
	Changed int64 `json:"changed"`
}

func stat(path string) input {
	st, err := os.Stat(path)
	if err != nil {
		return input{Path: path, Size: -1}
	}
	return input{Path: path, Size: st.Size(), Changed: st.ModTime().UnixNano()}
}

// saw writes down a path before it is read, so that a change in between makes
// the kept answer stale and not wrong.
func (l *look) saw(path string) { l.inputs = append(l.inputs, stat(path)) }

// A Cache keeps answers in memory. The zero value is ready.
type Cache struct {
	mu sync.Mutex
	// mu guards what follows.
	kept map[string]entry
}

type entry struct {
	Key    string    `json:"key"`
	At     time.Time `json:"at"`
	Inputs []input   `json:"inputs"`
	Found  Found     `json:"found"`
}

func (e entry) fresh(now time.Time) bool {
	if age := now.Sub(e.At); age < 0 || age > maxAge || len(e.Inputs) == 0 {
		return false
	}
	for _, in := range e.Inputs {
		if stat(in.Path) != in {
			return false
		}
	}
	return true
}

// cacheKey stands for everything but files that an answer depends on. It is a
// digest, since variables may hold credentials.
func (l *look) cacheKey() string {
	h := sha256.New()
	for _, s := range append([]string{"2", l.registry, boolWord(l.env.Offline)}, l.pass...) {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	for _, s := range l.env.Avoid {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return l.registry + "-" + hex.EncodeToString(h.Sum(nil))
}

func boolWord(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// recall returns a kept answer that still holds.
func (e Env) recall(key string) (Found, bool) {
	now := time.Now()
	if e.Cache != nil {
		e.Cache.mu.Lock()
		kept, ok := e.Cache.kept[key]
		e.Cache.mu.Unlock()
		if ok && kept.fresh(now) {
			return kept.Found.clone(), true
		}
	}
	kept, ok := e.load(key)
	if !ok || !kept.fresh(now) {
		return Found{}, false
	}
	e.Cache.put(kept)
	return kept.Found.clone(), true
}

func (e Env) keep(l *look, f Found) {
	kept := entry{Key: l.key, At: time.Now(), Inputs: l.inputs, Found: f.clone()}
	e.Cache.put(kept)
	e.save(kept)
}

func (c *Cache) put(e entry) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[string]entry{}
	}
	c.kept[e.Key] = e
}

// clone keeps a caller from changing what is kept.
func (f Found) clone() Found {
	hosts := make([]Host, len(f.Hosts))
	for i, h := range f.Hosts {
		h.Sources = append([]string(nil), h.Sources...)
		hosts[i] = h
	}
	return Found{Registry: f.Registry, Hosts: hosts, Notes: append([]string(nil), f.Notes...)}
}

// file is one per registry: the newest environment's answer is enough.
func (e Env) file(key string) string {
	registry, _, _ := strings.Cut(key, "-")
	return filepath.Join(e.CacheDir, "registry-"+registry+".json")
}

func (e Env) load(key string) (entry, bool) {
	if e.CacheDir == "" {
		return entry{}, false
	}
	path := e.file(key)
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxSettings {
		return entry{}, false
	}
	if runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return entry{}, false // somebody else may have put it there
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return entry{}, false
	}
	return decodeEntry(b, key)
}

// decodeEntry reads a kept answer and trusts nothing in it that a fresh look
// would not have let through.
func decodeEntry(b []byte, key string) (entry, bool) {
	var kept entry
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if d.Decode(&kept) != nil || kept.Key != key {
		return entry{}, false
	}
	for _, h := range kept.Found.Hosts {
		if n, ok := normalHost(h.Name); !ok || n != h.Name || h.Port == 0 || len(h.Sources) == 0 {
			return entry{}, false
		}
	}
	return kept, true
}

// save is best effort: without it the next process asks again.
func (e Env) save(kept entry) {
	if e.CacheDir == "" {
		return
	}
	b, err := json.Marshal(kept)
	if err != nil {
		return
	}
	tmp, err := os.CreateTemp(e.CacheDir, ".registry-*") // made with 0600
	if err != nil {
		return
	}
	_, werr := tmp.Write(b)
	cerr := tmp.Close()
	if werr == nil && cerr == nil && os.Rename(tmp.Name(), e.file(kept.Key)) == nil {
		return
	}
	os.Remove(tmp.Name())
}
