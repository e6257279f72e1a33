package node

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/lineage"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

const (
	// forwardWithin bounds how long git may take over the moves of one push.
	forwardWithin = 30 * time.Second
	// maxStores is how many object stores beside the repository's own git looks
	// at, maxStoreLook how many directories are looked through for them.
	maxStores    = 32
	maxStoreLook = 2000
)

// What commitsBetween answers with where it cannot go on.
const (
	exitNoOld = 10 + iota
	exitNoNew
	exitNoRepository
)

// commitsBetween writes the commits that lie between two, the later one among them. It
// is not believed: see package lineage.
const commitsBetween = `
cd "$1" && git rev-parse --git-dir >/dev/null 2>&1 || exit 12
git cat-file -e "$2^{commit}" 2>/dev/null || exit 10
git cat-file -e "$3^{commit}" 2>/dev/null || exit 11
git rev-list --topo-order --ancestry-path "$3" "^$2" | git cat-file --batch`

// forward proves for each move of a push that it only adds to what the server
// has. The commits come from the session's own repository, which git is asked
// for in a sandbox of its own, and count by their hashes alone.
func (l *life) forward(ctx context.Context, repository string, moves []egress.Move) []error {
	ctx, cancel := context.WithTimeout(ctx, forwardWithin)
	defer cancel()
	proofs := make([]error, len(moves))
	at, stores, err := l.n.objectStores(repository)
	var q *quarantine
	if err == nil {
		var here *gitSeat
		if here, err = l.n.seats.judging(ctx, l.judged); err == nil {
			defer here.leave()
			q, err = l.n.openQuarantine(ctx, l.caller, repository, here)
		}
	}
	if err == nil {
		defer q.close(ctx)
		for i, m := range moves {
			proofs[i] = q.leads(ctx, at, stores, m)
		}
		return proofs
	}
	l.n.log.Warn("asking git about a push", "session", l.id, "err", err)
	for i := range proofs {
		proofs[i] = errors.New("git could not be asked")
	}
	return proofs
}

// leads is nil where what a reference has led to is an ancestor of what it is
// to lead to.
func (q *quarantine) leads(ctx context.Context, at string, stores []string, m egress.Move) error {
	var commits lineage.Commits
	script := strings.ReplaceAll(commitsBetween, "git ", strings.Join(plainGit, " ")+" ")
	env := []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strings.Join(stores, ":"), "GIT_NO_LAZY_FETCH=1", "GIT_GRAFT_FILE=/dev/null"}
	argv := slices.Concat([]string{"env"}, env, []string{"sh", "-c", script, "sh", at, m.Was, m.Is})
	code, err := run(ctx, q.box, sandbox.Command{Argv: argv, Dir: q.repository}, sandbox.Stdio{Stdout: &commits, Stderr: &beginning{most: 1 << 10}})
	switch {
	case err != nil:
		q.n.log.Warn("asking git about a push", "repository", q.repository, "err", err)
		return errors.New("git could not be asked")
	case code == exitNoRepository:
		return errors.New("the session has no repository that could be asked")
	case code == exitNoOld:
		return errors.New("what the server has is not in the session's repository: fetch and merge or rebase, then push from there")
	case code == exitNoNew:
		return errors.New("what is pushed is not in the session's repository: push from there")
	}
	leads, err := commits.Leads(m.Was, m.Is)
	switch {
	case leads:
		return nil
	case err != nil:
		return err
	}
	return errors.New("what the server has is no ancestor of it")
}

// objectStores is where git is asked, and which object directories beside that
// one's own a session may push from: of submodules, and of repositories within
// the tree. They are names only; what lies there is looked at in a sandbox.
func (n *Node) objectStores(repository string) (at string, stores []string, err error) {
	r, err := n.look(n.home(n.environ), repository, repository)
	if err != nil {
		return "", nil, err
	}
	at = r.Top
	if r.GitDir == "" && len(r.Inside) > 0 {
		at = filepath.Dir(r.Inside[0])
	}
	for _, inside := range r.Inside {
		if filepath.Base(inside) == ".git" {
			stores = append(stores, filepath.Join(inside, "objects"))
		}
	}
	stores = append(stores, modules(r)...)
	stores = slices.DeleteFunc(stores, func(dir string) bool { return strings.ContainsAny(dir, ":\"\n") })
	return at, stores[:min(len(stores), maxStores)], nil
}

// modules are the object directories of submodules.
func modules(r repo.Repository) (stores []string) {
	if r.CommonDir == "" {
		return nil
	}
	left := maxStoreLook
	_ = filepath.WalkDir(filepath.Join(r.CommonDir, "modules"), func(path string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil || !d.IsDir() {
			return nil
		}
		switch d.Name() {
		case "objects":
			stores = append(stores, path)
			return fs.SkipDir
		case "refs", "logs", "hooks", "info", "lfs":
			return fs.SkipDir
		}
		return nil
	})
	return stores
}
