package belay

import "errors"

// The kinds of errors, for errors.Is. They say what a caller can do next.
var (
	ErrHeld         = errors.New("another client holds the lock")
	ErrFrozen       = errors.New("a freeze forbids new holders of the lock")
	ErrLost         = errors.New("the lock is not, or no longer, yours")
	ErrReleased     = errors.New("the lock was released")
	ErrIDUsed       = errors.New("the lock id was used before")
	ErrNotFound     = errors.New("not found")
	ErrNotPermitted = errors.New("not permitted")
	ErrInvalid      = errors.New("invalid request or answer")
	ErrUnavailable  = errors.New("no server answers, and nothing was changed")
	// ErrUnknown: an answer was lost. The change may have been made: repeat it with the lock id in Error.LockID.
	ErrUnknown = errors.New("the outcome is unknown")
)

// Error is the error of a request: errors.As finds it, and errors.Is compares its kind.
type Error struct {
	Message  string
	Code     string // the server's word for it, such as "lock_held"; "" without an answer
	Status   int    // of HTTP; 0 without an answer
	LockID   string // of the request
	Lock     *Info  // the lock that stood in the way
	Position int    // how many waiters are ahead

	kind, cause error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return "belay: " + e.Message + ": " + e.cause.Error()
	}
	return "belay: " + e.Message
}

// Is reports whether target is the kind of this error.
func (e *Error) Is(target error) bool { return e.kind == target }

// Unwrap returns what caused the error, such as an error of the network or of a context.
func (e *Error) Unwrap() error { return e.cause }

var kinds = map[string]error{
	"lock_held": ErrHeld, "superseded": ErrHeld, "frozen": ErrFrozen, "not_holder": ErrLost, "lease_lost": ErrLost,
	"id_used": ErrIDUsed, "not_found": ErrNotFound, "bad_config": ErrInvalid, "bad_content": ErrInvalid,
}

// kindOf says what an answer means. isRead: the request changes nothing.
func kindOf(status int, code string, isRead bool) error {
	switch kind := kinds[code]; {
	case kind != nil:
		return kind
	case status == 401 || status == 403:
		return ErrNotPermitted
	case status == 503 || status == 429 || (status >= 500 && isRead):
		return ErrUnavailable
	case status >= 500:
		return ErrUnknown
	}
	return ErrInvalid
}

// isLoss: the answer proves that the lock is not held. isFault: the same request may succeed if it is sent again.
func isLoss(err error) bool  { return errors.Is(err, ErrLost) || errors.Is(err, ErrNotFound) }
func isFault(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) }
