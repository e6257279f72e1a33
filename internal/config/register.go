package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Place is where one node has its things.
type Place struct {
	State   string `json:"state"`
	Runtime string `json:"runtime"`
}

// entrySuffix is that of every entry of the register.
const entrySuffix = ".json"

// entry is the file of these paths in the register. Its name follows from what
// it says, so that a node finds it again.
func (p Paths) entry() string {
	sum := sha256.Sum256([]byte(p.State + "\x00" + p.Runtime))
	return filepath.Join(p.Register, hex.EncodeToString(sum[:8])+entrySuffix)
}

// Enrol writes into the register where this node has its things, and forgets
// nodes whose state directory is no more. Without it nobody who looks for what
// dead nodes left would know of a node that was moved by MOJOUP_STATE_DIR.
func (p Paths) Enrol() error {
	if p.Register == "" {
		return nil
	}
	if err := os.MkdirAll(p.Register, 0o700); err != nil {
		return fmt.Errorf("entering this node into the register: %w", err)
	}
	if err := p.forget(); err != nil {
		return err
	}
	text, err := json.Marshal(Place{State: p.State, Runtime: p.Runtime})
	if err != nil {
		return fmt.Errorf("BUG: entering this node into the register: %w", err)
	}
	// Whole or not at all: others read it at any moment.
	fresh := p.entry() + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return fmt.Errorf("entering this node into the register: %w", err)
	}
	if err := os.Rename(fresh, p.entry()); err != nil {
		return fmt.Errorf("entering this node into the register: %w", err)
	}
	return nil
}

// Leave takes this node out of the register: nothing of it is left.
func (p Paths) Leave() error {
	if p.Register == "" {
		return nil
	}
	if err := os.Remove(p.entry()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking this node out of the register: %w", err)
	}
	return nil
}

// Places lists the nodes of this user that are or were, this one first: those
// in the register, and the one of these paths whether it is there or not.
func (p Paths) Places() ([]Place, error) {
	out := []Place{{State: p.State, Runtime: p.Runtime}}
	entries, err := os.ReadDir(p.Register)
	if p.Register == "" || errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("reading the register of nodes: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), entrySuffix) {
			continue
		}
		place, err := readPlace(filepath.Join(p.Register, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it ends at this moment
		}
		if err != nil {
			return out, err
		}
		if place != out[0] {
			out = append(out, place)
		}
	}
	return out, nil
}

func readPlace(file string) (Place, error) {
	var place Place
	text, err := os.ReadFile(file)
	if err != nil {
		return place, fmt.Errorf("reading the register of nodes: %w", err)
	}
	if err := json.Unmarshal(text, &place); err != nil || !filepath.IsAbs(place.State) || !filepath.IsAbs(place.Runtime) {
		return place, &PathError{Path: file, Reason: "the register of nodes has an entry that names no node", hint: "remove the file"}
	}
	return place, nil
}

// forget drops entries of nodes whose state is gone.
func (p Paths) forget() error {
	entries, err := os.ReadDir(p.Register)
	if err != nil {
		return fmt.Errorf("reading the register of nodes: %w", err)
	}
	for _, e := range entries {
		file := filepath.Join(p.Register, e.Name())
		place, err := readPlace(file)
		if err != nil {
			continue // not for a start to mend
		}
		if _, err := os.Lstat(place.State); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(file)
		}
	}
	return nil
}
