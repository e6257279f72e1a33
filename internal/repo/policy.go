package repo

import "errors"

// MaxPolicy is how many bytes a repository's policy may have.
const MaxPolicy = 1 << 20

// PolicyFile is where a repository's policy lies, below its top.
const PolicyFile = ".mojoup/policy.json"

// ErrNoPolicy says that a repository has no policy file. Every other error of
// [ReadPolicy] means that there is one, or may be one, which could not be
// read: no session.
var ErrNoPolicy = errors.New("the repository has no " + PolicyFile)

// ErrUnsupported is answered where sandboxes cannot exist.
var ErrUnsupported = errors.New("sandboxes need Linux")
