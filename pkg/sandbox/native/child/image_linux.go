package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Name is the helper's name in a process list; the sandbox's ID is its only
// argument, so that one left by a dead node can be found.
const Name = "mojoup-child"

// An Image is the helper's program in sealed memory: what is executed is
// never a file that the session's user could write.
type Image struct {
	program, null *os.File
}

// Available reports whether this build holds a helper: nil, or a
// [*MissingError].
func Available() error {
	_, err := embedded(runtime.GOARCH)
	return err
}

func embedded(arch string) ([]byte, error) {
	image, err := built.ReadFile("bin/helper-" + arch)
	if err != nil {
		return nil, &MissingError{Arch: arch}
	}
	return image, nil
}

// Load puts the embedded helper into memory. The caller closes it.
func Load() (*Image, error) {
	image, err := embedded(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	// Since 6.3 the kernel wants to be told that this file is a program;
	// before, it does not know the flag.
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(Name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(Name, flags)
	}
	if err != nil {
		return nil, &StartError{err}
	}
	program := os.NewFile(uintptr(fd), Name)
	if err := writeAll(fd, image); err != nil {
		program.Close()
		return nil, fmt.Errorf("loading the sandbox helper: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		program.Close()
		return nil, fmt.Errorf("sealing the sandbox helper: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		program.Close()
		return nil, fmt.Errorf("loading the sandbox helper: %w", err)
	}
	return &Image{program: program, null: null}, nil
}

// Close frees the memory. Helpers that run are not touched.
func (i *Image) Close() error {
	return errors.Join(i.program.Close(), i.null.Close())
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// memory is a file that holds b, for a payload larger than a packet.
func memory(b []byte) (int, error) {
	fd, err := unix.MemfdCreate("payload", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("payload", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, err
	}
	if err := writeAll(fd, b); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
