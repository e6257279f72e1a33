package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mojoup/mojoup-node/internal/session"
)

// recordingsDir holds what terminals showed, where somebody asked for it: a
// file for each session, in the state directory.
const recordingsDir = "recordings"

func (s *Store) recordingPath(id session.ID) string {
	return filepath.Join(filepath.Dir(s.path), recordingsDir, string(id)+".cast")
}

// NewRecording makes the file for a session's recording, which its owner alone
// may read. It goes with the session, see [Store.Prune].
func (s *Store) NewRecording(ctx context.Context, id session.ID) (*os.File, error) {
	path := s.recordingPath(id)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &Error{Kind: kindOf(err), Path: filepath.Dir(path), Reason: "the directory of recordings cannot be made", Err: err}
	}
	if err := s.makeRoom(ctx, filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, &Error{Kind: kindOf(err), Path: path, Reason: "the recording cannot be made", Err: err}
	}
	return f, nil
}

// makeRoom removes the oldest recordings of past sessions beyond what
// Options.Keep allows.
func (s *Store) makeRoom(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &Error{Kind: kindOf(err), Path: dir, Reason: "the directory of recordings cannot be read", Err: err}
	}
	var infos []fs.FileInfo
	var total int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			infos, total = append(infos, info), total+info.Size()
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos {
		if total <= s.keep.Recordings {
			return nil
		}
		id, err := session.Parse(recordedID(info.Name()))
		if err != nil {
			continue // not ours
		}
		if row, err := s.Session(ctx, id); err == nil && !row.State.Ended() {
			continue
		}
		if err := s.removeRecording(id); err != nil {
			return err
		}
		total -= info.Size()
	}
	return nil
}

func recordedID(name string) string {
	return name[:max(0, len(name)-len(".cast"))]
}

// Recording opens what is kept of what a session's terminal showed, or returns
// a [NotFoundError].
func (s *Store) Recording(id session.ID) (*os.File, error) {
	f, err := os.Open(s.recordingPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotFoundError{What: "recording", ID: string(id)}
	}
	if err != nil {
		return nil, &Error{Kind: kindOf(err), Path: s.recordingPath(id), Reason: "the recording cannot be read", Err: err}
	}
	return f, nil
}

// Recorded is how many bytes are kept of what a session's terminal showed.
func (s *Store) Recorded(id session.ID) int64 {
	info, err := os.Lstat(s.recordingPath(id))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (s *Store) removeRecording(id session.ID) error {
	if err := os.Remove(s.recordingPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &Error{Kind: kindOf(err), Path: s.recordingPath(id), Reason: "the recording cannot be removed", Err: err}
	}
	return nil
}
