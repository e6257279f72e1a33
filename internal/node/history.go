package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

const (
	// historyWithin bounds how long git may take over what a session left: the
	// person waits for the last line.
	historyWithin = 3 * time.Second
	// seatWithin bounds how long a session that has ended waits before, where many
	// end at once.
	seatWithin = 30 * time.Second
	// How many references that moved are looked at, and how many of those for
	// where they led before; how many commits are named, and paths of each; how
	// much git may say, in bytes.
	maxMoves    = 1000
	maxPairs    = 100 // each is a question of its own
	maxCommits  = 50
	maxTouched  = 20
	maxGitWords = 1 << 20
)

// history is what became of a repository's history while a session lived, and
// is more than new work: commits that change what somebody's machine obeys, and
// references that no longer lead to where they led.
type history struct {
	commits    []api.Commit // never more than maxCommits
	references []api.Reference
	lines      []string
}

// A historian asks git what a session left, in a sandbox of its own.
type historian struct {
	n         *Node
	caller    console.Caller
	tree      repo.Repository
	protected []string // patterns of the policy
	before    repo.Refs
}

// tell compares the references with those of the beginning. Where none has
// moved, git is not asked.
func (h historian) tell(ctx context.Context) (out history) {
	after := h.tree.Refs()
	moves := h.before.Moves(after)
	if !h.before.Known() || !after.Known() {
		if h.before.Same(after) {
			return out
		}
		out.lines = append(out.lines, "the references of this repository are too many, or kept in a way that is not read: `git log` shows commits that change what is protected, and `git reflog` what was rewritten")
	}
	if len(moves) == 0 {
		return out
	}
	if len(moves) > maxMoves {
		out.lines = append(out.lines, fmt.Sprintf("%d references have moved, of which %d were looked at", len(moves), maxMoves))
		moves = moves[:maxMoves]
	}
	if err := h.ask(ctx, moves, &out); err != nil {
		h.n.log.Warn("asking git what a session left", "repository", h.tree.Top, "err", err)
		out.lines = append(out.lines, "what was committed could not be looked at: look for changes of what is protected before you merge or push it")
	}
	out.lines = append(out.lines, historyLines(out.commits, out.references)...)
	return out
}

func (h historian) ask(ctx context.Context, moves []repo.Move, out *history) error {
	at, err := h.n.seats.ending(ctx)
	if err != nil {
		return err
	}
	defer at.leave()
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	q, err := h.n.openQuarantine(ctx, h.caller, h.tree.Top, at)
	if err != nil {
		return err
	}
	defer q.close(ctx)
	local, fetched := tips(moves)
	known := h.before.Commits()
	for _, part := range []struct{ tips, known []string }{{local, known}, {fetched, slices.Concat(known, local)}} {
		if len(part.tips) == 0 {
			continue
		}
		more, err := h.commits(ctx, q, part.tips, part.known, moves)
		if err != nil {
			return err
		}
		out.commits = append(out.commits, more...)
	}
	out.commits = out.commits[:min(len(out.commits), maxCommits)]
	out.references, err = h.lost(ctx, q, moves)
	return err
}

// tips are where the references lead now: those of the session's own work, and
// those that say what another repository has.
func tips(moves []repo.Move) (local, fetched []string) {
	for _, m := range moves {
		switch {
		case m.Is == "":
		case strings.HasPrefix(m.Name, "refs/remotes/"):
			fetched = append(fetched, m.Is)
		default:
			local = append(local, m.Is)
		}
	}
	return local, fetched
}

// plainGit is git without what a repository can make it believe: replaced
// objects, and an index of its history that says which commit changed what.
var plainGit = append(slices.Clone(quietGit), "--no-replace-objects", "-c", "core.commitGraph=false", "-c", "log.showRoot=true", "-c", "diff.orderFile=/dev/null")

// commits are the new ones that change what somebody's machine obeys, the
// newest first.
func (h historian) commits(ctx context.Context, q *quarantine, tips, known []string, moves []repo.Move) ([]api.Commit, error) {
	mark := string(session.New()) // which no name in the repository can be
	argv := append(slices.Clone(plainGit), "log", "--stdin", "--ignore-missing", fmt.Sprintf("--max-count=%d", maxCommits), "--full-history", "-c", "--source",
		"--name-only", "-z", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none", "--format="+mark+"%H%S", "--")
	asked := strings.Join(tips, "\n") + "\n"
	for _, id := range known {
		asked += "^" + id + "\n"
	}
	said, err := q.ask(ctx, append(argv, pathspecs(h.tree.ObeyedPaths(), h.protected)...), asked, maxGitWords)
	if err != nil {
		return nil, err
	}
	return parseCommits(said, mark, moves), nil
}

// pathspecs are what git is to look for: names as they are, and the patterns of
// a policy, which mean the same to git.
func pathspecs(names, patterns []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, ":(top,literal)"+name)
	}
	for _, p := range patterns {
		p = strings.TrimSuffix(strings.TrimSuffix(p, "/"), "/**")
		out = append(out, ":(top,glob)"+p, ":(top,glob)"+p+"/**")
	}
	return out
}

// parseCommits reads what git wrote: for each commit the mark, its id and the
// tip that leads to it, then the names of files. All end with a zero byte, and
// a line break stands before the names.
func parseCommits(said []byte, mark string, moves []repo.Move) []api.Commit {
	names := map[string]string{}
	for _, m := range slices.Backward(moves) { // the first of those that lead there
		names[m.Is] = refName(m.Name)
	}
	var out []api.Commit
	fresh := false
	for word := range strings.SplitSeq(string(said), "\x00") {
		if rest, ok := strings.CutPrefix(strings.TrimPrefix(word, "\n"), mark); ok {
			half := len(rest) / 2 // two ids of the same length
			out, fresh = append(out, api.Commit{ID: rest[:half], Reference: names[rest[half:]], Paths: []string{}}), true
			continue
		}
		if fresh {
			word = strings.TrimPrefix(word, "\n")
		}
		if word == "" || len(out) == 0 {
			continue
		}
		fresh = false
		if last := &out[len(out)-1]; len(last.Paths) < maxTouched {
			last.Paths = append(last.Paths, strings.ToValidUTF8(word, "\uFFFD"))
		}
	}
	return slices.DeleteFunc(out, func(c api.Commit) bool { return len(c.Paths) == 0 }) // merges that only bring together
}

// refName is a reference as people say it.
func refName(full string) string {
	for _, prefix := range []string{"refs/heads/", "refs/remotes/", "refs/tags/", "refs/"} {
		if short, ok := strings.CutPrefix(full, prefix); ok {
			return strings.ToValidUTF8(short, "\uFFFD")
		}
	}
	return full
}

// ancestors answers a line for each pair of arguments: 0 where the first leads
// to the second.
const ancestors = `while [ $# -gt 1 ]; do git merge-base --is-ancestor "$1" "$2" 2>/dev/null; echo $?; shift 2; done`

// lost are the references that no longer lead to where they led: deleted ones,
// and those whose history was rewritten. What another repository has is its
// own affair.
func (h historian) lost(ctx context.Context, q *quarantine, moves []repo.Move) ([]api.Reference, error) {
	var out, changed []api.Reference
	var pairs []string
	for _, m := range moves {
		r := api.Reference{Name: refName(m.Name), Was: m.Was, Is: m.Is}
		switch {
		case m.Was == "", m.Name == "HEAD", strings.HasPrefix(m.Name, "refs/remotes/"), m.Name == "refs/stash":
		case m.Is == "":
			out = append(out, r)
		case len(changed) < maxPairs:
			changed, pairs = append(changed, r), append(pairs, m.Was, m.Is)
		}
	}
	if len(pairs) == 0 {
		return out, nil
	}
	script := strings.ReplaceAll(ancestors, "git ", strings.Join(plainGit, " ")+" ")
	said, err := q.ask(ctx, append([]string{"sh", "-c", script, "sh"}, pairs...), "", maxGitWords)
	if err != nil {
		return out, err
	}
	for i, answer := range strings.Fields(string(said)) {
		if answer != "0" && i < len(changed) {
			out = append(out, changed[i])
		}
	}
	return out, nil
}

// historyLines are the closing lines.
func historyLines(commits []api.Commit, references []api.Reference) (out []string) {
	var names, deleted, rewritten []string
	for _, c := range commits {
		names = append(names, strings.TrimSpace(cut(c.Reference)+" "+short(c.ID))+" ("+some(c.Paths)+")")
	}
	for _, r := range references {
		if r.Is == "" {
			deleted = append(deleted, cut(r.Name)+" (was "+short(r.Was)+")")
		} else {
			rewritten = append(rewritten, cut(r.Name)+" (was "+short(r.Was)+", is "+short(r.Is)+")")
		}
	}
	say := func(names []string, format string) {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf(format, joined(names)))
		}
	}
	say(names, "new commits change what is protected, which takes effect where they are merged, checked out or pushed: %s")
	say(deleted, "references were deleted, which `git branch NAME COMMIT` brings back: %s")
	say(rewritten, "history was rewritten, and git keeps what was there for some time: %s")
	return out
}

func short(id string) string { return id[:min(len(id), 10)] }

// some are names of a session's making as part of a sentence.
func some(names []string) string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, cut(name))
	}
	return joined(out)
}

// joined are at most five of them.
func joined(parts []string) string {
	const most = 5
	if n := len(parts) - most; n > 0 {
		return strings.Join(parts[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(parts, ", ")
}

// cut is a name of a session's making, quoted where it could be taken for
// another part of the sentence.
func cut(name string) string {
	const most = 80
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	if strings.ContainsAny(name, " ,()`\"\\") || strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}
