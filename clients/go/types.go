package belay

import "time"

// Millis is a number of milliseconds.
type Millis int64

// Duration converts it.
func (m Millis) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// Holder is one holder of a lock. What the server does not know or does not show is zero.
type Holder struct {
	LockID        string            `json:"lock_id"` // shown to the token that acquired the lock, and to admins
	Token         int64             `json:"token"`   // the fencing token
	LockedBy      string            `json:"locked_by"`
	LockedByName  string            `json:"locked_by_name"`
	AcquiredBy    string            `json:"acquired_by"` // the name of the token that acquired it
	Status        string            `json:"status"`      // active, expired or released
	Outcome       string            `json:"outcome"`     // completed, failed or forced
	LockedAt      time.Time         `json:"locked_at"`
	ExpiresAt     time.Time         `json:"expires_at"` // for display; Lock.ValidFor counts
	LastHeartbeat time.Time         `json:"last_heartbeat"`
	TTL           Millis            `json:"ttl_ms"`
	ExpiresIn     Millis            `json:"expires_in_ms"`
	ValidFor      *Millis           `json:"valid_for_ms"` // from before the request was sent; nil: not said
	IsStale       bool              `json:"is_stale"`
	Metadata      map[string]string `json:"metadata"`
}

// Info is a lock: the fields of a holder, and what all holders share.
type Info struct {
	Key string `json:"key"`
	Holder
	ReleasedAt time.Time `json:"released_at"` // zero: it was not released
	Mode       string    `json:"mode"`        // exclusive, shared or slots
	Slots      int       `json:"slots"`
	Holders    []Holder  `json:"holders"`
	Waiting    []Waiter  `json:"waiting"` // the first ten; nil: not read
}

// Waiter is a client in the queue of a lock.
type Waiter struct {
	Position     int       `json:"position"` // how many wait before it
	Key          string    `json:"key"`
	LockedBy     string    `json:"locked_by"`
	LockedByName string    `json:"locked_by_name"`
	Since        time.Time `json:"since"`
	Mode         string    `json:"mode"`
}

// Event is something that happened to a lock.
type Event struct {
	ID           int64             `json:"id"`
	Timestamp    time.Time         `json:"timestamp"`
	Level        string            `json:"level"`
	Type         string            `json:"event"` // such as lock.acquired
	Key          string            `json:"lock_key"`
	LockID       string            `json:"lock_id"`
	Token        int64             `json:"token"`
	LockedBy     string            `json:"locked_by"`
	LockedByName string            `json:"locked_by_name"`
	By           string            `json:"by"`
	Reason       string            `json:"reason"`
	Seconds      float64           `json:"duration_seconds"`
	Metadata     map[string]string `json:"metadata"`
}

// Freeze forbids new holders of the keys that match its pattern.
type Freeze struct {
	ID        string    `json:"id"`
	Pattern   string    `json:"pattern"`
	Reason    string    `json:"reason"`
	By        string    `json:"by"`
	CreatedAt time.Time `json:"created_at"`
	From      time.Time `json:"from"`  // zero: since it was created
	Until     time.Time `json:"until"` // zero: until it is ended
	InForce   bool      `json:"in_force"`
}

// grants is the answer to a request about one key, or several.
type grants struct {
	Info
	Locks []Info
}

// on returns the lock on each of the keys.
func (g grants) on(keys []string) ([]Info, error) {
	infos := g.Locks
	if len(infos) == 0 {
		infos = []Info{g.Info}
	}
	for _, info := range infos {
		if len(infos) != len(keys) || info.LockID == "" || info.ValidFor == nil {
			return nil, &Error{Message: "the server's answer lacks a key, a lock_id or a valid_for_ms", kind: ErrUnknown}
		}
	}
	return infos, nil
}
