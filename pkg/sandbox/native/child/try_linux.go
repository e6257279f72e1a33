package child

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// TryNamespaces makes every namespace, the maps, a root of memory, a fresh
// /proc, private terminals and a loopback interface, as a sandbox of this
// process' own user would, and ends it all again. A refusal is a
// [*StageError].
//
// By doing it, since no switch tells: where AppArmor restricts user
// namespaces the first step succeeds and a later one fails.
func TryNamespaces(ctx context.Context) error {
	return try(ctx, func(h *Helper) ([]Op, error) {
		return []Op{
			// Private to the trial, so that any directory does.
			{Code: Root, First: "/tmp", A: 1 << 20, B: 64, C: 0o755},
			{Code: Proc, Flags: Make, First: "/proc"},
			{Code: Devpts, Flags: Make, First: "/dev/pts"},
			{Code: Loopback},
		}, h.MakeNamespaces(os.Geteuid(), os.Getegid())
	})
}

// TryListener installs a seccomp filter with a notification listener in a
// child. A refusal is a [*StageError]; EBUSY means that another listener is
// there already, as in WSL's mirrored mode.
func TryListener(ctx context.Context) error {
	return try(ctx, func(h *Helper) ([]Op, error) {
		return nil, h.send(message{kind: msgListener})
	})
}

func try(ctx context.Context, begin func(*Helper) ([]Op, error)) (err error) {
	image, err := Load()
	if err != nil {
		return err
	}
	defer image.Close()
	groups, err := unix.Getgroups()
	if err != nil {
		return err
	}
	h, err := image.Start(Options{ID: "trial", UID: os.Geteuid(), GID: os.Getegid(), Groups: groups})
	if err != nil {
		return err
	}
	defer func() { _ = h.Kill(context.WithoutCancel(ctx)) }()
	ops, err := begin(h)
	if err != nil {
		return err
	}
	if ops == nil {
		_, err = h.await(ctx, h.set)
		return err
	}
	_, err = h.SetUp(ctx, ops)
	return err
}
