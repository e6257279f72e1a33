package cli

import (
	"errors"
	"io/fs"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// maxDocument is how large a policy may be, in bytes.
const maxDocument = 1 << 20

var (
	errNoFile   = errors.New("it is not a regular file")
	errTooLarge = errors.New("it is larger than 1 MiB")
)

// readNamed reads the policy in a file that a person named. That it cannot be
// read is wrong usage, whichever command it was named to.
func readNamed(path string) ([]byte, error) {
	text, err := readBounded(path)
	if err == nil {
		return text, nil
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the path is named already
	}
	f := fault.Usage("the policy %s cannot be read: %w", path, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, f.WithHint("check the path, which begins at the current directory; `mojoup-node policy check FILE` looks at one")
	case errors.Is(err, fs.ErrPermission):
		return nil, f.WithHint("make it readable for you: chmod u+r %s", fault.Quoted(path))
	}
	return nil, f.WithHint("name a text file with a policy in it")
}
