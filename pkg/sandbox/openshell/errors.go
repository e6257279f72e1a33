package openshell

// An Error is a sentence for people about what a gateway did not do.
type Error struct {
	Code Code
	// Sentence names the thing and what is wrong with it.
	Sentence string
	// Advice is what to do about it; empty where there is nothing.
	Advice string
	// Err is what lies beneath, for logs; it may be nil.
	Err error
}

func (e *Error) Error() string { return e.Sentence }
func (e *Error) Unwrap() error { return e.Err }

// Hint is what to do about it, or "".
func (e *Error) Hint() string { return e.Advice }

// Is lets errors.Is find an error by its code: errors.Is(err, openshell.NotFound).
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Code says what kind of failure an [Error] is. It is an error itself only so
// that errors.Is can be asked for it.
type Code string

func (c Code) Error() string { return string(c) }

// Codes, by who can do something about it.
const (
	// Finding a gateway.
	NotRegistered  Code = "not registered"  // none is registered or chosen
	BadFiles       Code = "bad files"       // registration cannot be read or is not to be trusted
	RemoteGateway  Code = "remote gateway"  // it runs on another machine
	BadCredentials Code = "bad credentials" // missing, expired, or readable by others

	// Speaking to it.
	Unreachable        Code = "unreachable"     // nothing answers, or it went away
	Cancelled          Code = "cancelled"       // by our own caller
	NoAnswer           Code = "no answer"       // connected, but silent for too long
	Unauthenticated    Code = "unauthenticated" // it does not know who we are
	Forbidden          Code = "forbidden"       // it knows, and we may not
	VersionUnsupported Code = "version unsupported"
	VersionChanged     Code = "version changed"
	NotAGateway        Code = "not a gateway" // something else answers there
	Nonsense           Code = "nonsense"      // an answer that cannot be
	TooLarge           Code = "too large"     // more than is taken
	Overloaded         Code = "overloaded"

	// Making a sandbox.
	BadRequest      Code = "bad request" // our request is not valid for it
	RootRefused     Code = "root refused"
	BindsOff        Code = "bind mounts off"
	DriverConfigOff Code = "driver config off"     // 0.1.x: allow_driver_config
	AdmissionOn     Code = "resource admission on" // 0.1.x
	SourceMissing   Code = "source missing"        // as the gateway sees it
	TargetReserved  Code = "target reserved"
	ImageMissing    Code = "image missing" // cannot be pulled
	NoNetwork       Code = "no network"    // Docker has none for it
	ContainerFailed Code = "container failed"
	NameTaken       Code = "name taken"
	Uncertain       Code = "uncertain" // whether it was made is not known
	Refused         Code = "refused"   // for a reason that we do not know by name

	// A sandbox that was there.
	NotFound Code = "not found"
	NotReady Code = "not ready" // takes no commands
	Lost     Code = "lost"      // gone, or started anew, behind our back
	NoExit   Code = "no exit"   // a command whose end is not known
	Hung     Code = "hung"      // a command that did not answer in time
	NotGone  Code = "not gone"  // still there after the time given
)
