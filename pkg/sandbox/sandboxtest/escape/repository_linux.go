package escape

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var (
	frozen = []string{"EROFS", "EACCES"}
	pinned = []string{"EBUSY", "EXDEV", "EROFS", "EACCES"}
	held   = []string{"EROFS", "EACCES", "EBUSY", "EEXIST", "EISDIR", "EXDEV"}
)

// repositoryAttempts are about what the host's git and editors obey.
func repositoryAttempts() []Attempt {
	return []Attempt{
		{Name: "write-hook", Tries: "make a git hook", Want: frozen, do: func(a *Arena) error { return creates(filepath.Join(a.Common, "hooks", "post-index-change")) }},
		{Name: "write-config", Tries: "open git's config for writing", Want: frozen, do: func(a *Arena) error { return opens(config(a), unix.O_WRONLY|unix.O_APPEND) }},
		{Name: "truncate-config", Tries: "truncate git's config to its own length", Want: frozen, do: truncateConfig},
		{Name: "chmod-config", Tries: "chmod git's config", Want: frozen, do: func(a *Arena) error { return unix.Chmod(config(a), 0o644) }},
		{Name: "rename-config", Tries: "move git's config away", Want: pinned, do: func(a *Arena) error { return renames(config(a), filepath.Join(a.Common, "objects", "moved")) }},
		{Name: "replace-config", Tries: "rename a file over git's config", Want: pinned, do: replaceConfig},
		{Name: "exchange-config", Tries: "exchange git's config with another file", Want: pinned, do: exchangeConfig},
		{Name: "unlink-config", Tries: "unlink git's config", Want: pinned, do: unlinkConfig},
		{Name: "link-config", Tries: "hard link git's config to a writable name", Want: []string{"EXDEV", "EROFS", "EACCES"}, do: func(a *Arena) error { return links(config(a), filepath.Join(a.Common, "objects", "linked")) }},
		{Name: "rename-hooks", Tries: "move git's hooks away", Want: pinned, do: func(a *Arena) error {
			return renames(filepath.Join(a.Common, "hooks"), filepath.Join(a.Common, "hooks-moved"))
		}},
		{Name: "rename-repo", Tries: "move the repository away", Want: append([]string{"ENOENT"}, pinned...), do: func(a *Arena) error { return renames(a.Repo, a.Repo+"-moved") }},
		{Name: "rename-git", Tries: "move .git away, to put another in its place", Want: pinned, In: MainTree, do: func(a *Arena) error {
			return renames(filepath.Join(a.Repo, ".git"), filepath.Join(a.Repo, ".git-moved"))
		}},
		{Name: "create-commondir", Tries: "send git to another config by .git/commondir", Want: held, In: MainTree, do: func(a *Arena) error {
			return plants(filepath.Join(a.GitDir, "commondir"))
		}},
		{Name: "create-policy", Tries: "write the policy of the next session", Want: held, do: createPolicy},
		{Name: "remove-placeholder", Tries: "remove the directory that holds a missing protected path", Want: pinned, Outside: needsBox, do: removePlaceholder},
		{Name: "rewrite-commondir", Tries: "send git to another config by the worktree's commondir", Want: frozen, In: Worktree, do: func(a *Arena) error {
			return opens(filepath.Join(a.GitDir, "commondir"), unix.O_WRONLY)
		}},
		{Name: "replace-commondir", Tries: "rename a file over the worktree's commondir", Want: pinned, In: Worktree, do: func(a *Arena) error {
			return ofOwn(a, func(path string) error { return copyOver(path, filepath.Join(a.GitDir, "commondir")) })
		}},
		{Name: "rewrite-gitdir", Tries: "rewrite the worktree's gitdir", Want: frozen, In: Worktree, do: func(a *Arena) error {
			return opens(filepath.Join(a.GitDir, "gitdir"), unix.O_WRONLY)
		}},
		{Name: "rewrite-git-file", Tries: "rewrite the .git file of a worktree", Want: frozen, In: Worktree, do: func(a *Arena) error {
			return opens(filepath.Join(a.Repo, ".git"), unix.O_WRONLY)
		}},
		{Name: "other-worktrees", Tries: "make an entry beside this worktree's own", Want: frozen, In: Worktree, do: func(a *Arena) error {
			dir := filepath.Join(a.Common, "worktrees", "planted")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.Remove(dir)
		}},
		{Name: "read-main-tree", Tries: "read a file of the main working tree", Want: notThere, In: Worktree, do: func(a *Arena) error {
			return reads(filepath.Join(filepath.Dir(a.Common), "file"))
		}},
		{Name: "socket-in-repository", Tries: "connect to a socket that a host's process has in the repository", Want: []string{"EACCES", "ECONNREFUSED"}, Known: "a socket in the repository is part of the repository; Landlock forbids it from ABI 9 on", do: func(a *Arena) error {
			return connects(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: a.InRepo})
		}},
	}
}

func config(a *Arena) string { return filepath.Join(a.Common, "config") }

func truncateConfig(a *Arena) error {
	info, err := os.Stat(config(a))
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	return unix.Truncate(config(a), info.Size())
}

// copyOver renames path, made a copy of target first, over target.
func copyOver(path, target string) error {
	content, err := os.ReadFile(target)
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return errors.Join(errNoArena, err)
	}
	return unix.Rename(path, target)
}

func replaceConfig(a *Arena) error {
	path := filepath.Join(a.Common, "objects", "new-config")
	defer os.Remove(path)
	return copyOver(path, config(a))
}

func exchangeConfig(a *Arena) error {
	path := filepath.Join(a.Common, "objects", "other-config")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return errors.Join(errNoArena, err)
	}
	defer os.Remove(path)
	swap := func() error {
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, config(a), unix.RENAME_EXCHANGE)
	}
	if err := swap(); err != nil {
		return err
	}
	return swap()
}

func unlinkConfig(a *Arena) error {
	content, err := os.ReadFile(config(a))
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	if err := unix.Unlink(config(a)); err != nil {
		return err
	}
	return os.WriteFile(config(a), content, 0o644)
}

// plants puts content at a path, as a new file or into the one that is there.
func plants(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_ = f.Close()
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return os.Remove(path)
	}
	return nil
}

func createPolicy(a *Arena) error {
	dir := filepath.Join(a.Repo, ".mojoup")
	made := os.Mkdir(dir, 0o755)
	if made != nil && !errors.Is(made, os.ErrExist) {
		return made
	}
	err := plants(filepath.Join(dir, "policy.json"))
	if made == nil {
		_ = os.Remove(dir)
	}
	return err
}

func removePlaceholder(a *Arena) error {
	if a.Held == "" {
		return errNoArena
	}
	return unix.Rmdir(a.Held)
}
