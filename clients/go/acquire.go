package belay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// Forever, as Options.Wait, waits until the lock is granted or the context ends.
	Forever = time.Duration(1 << 62)

	never        = Forever
	leaveTimeout = 2 * time.Second // of each server
	several      = 4 * time.Second // for an answer, while there is another server that was not asked
	answerMin    = 300 * time.Millisecond
)

// Options of an acquisition. The zero value makes one attempt, with the server's default ttl.
type Options struct {
	TTL  time.Duration // the lease; 0: the server's default for this key
	Wait time.Duration // how long to wait in the queue; 0: one attempt

	// Owner identifies the holder, and OwnerName is its name for people. Clients that wait for the same key must have
	// different owners. The default is USER@HOST:PID/N, with another N for each acquisition.
	Owner, OwnerName string

	LockID string // of this acquisition, to repeat one whose outcome is unknown; default: a random one

	// The lock is renewed in the background after a third of its validity. Heartbeat promises the server to do it at
	// least this often; after StaleAfter without it the lock is shown as stale.
	Heartbeat, StaleAfter time.Duration
	NoHeartbeat           bool // do not renew in the background

	Shared        bool   // beside other shared holders
	Slots         int    // beside at most so many holders, 1 to 1000
	Reentrant     bool   // if the same Owner holds the lock, share it
	Profile       string // of the server's configuration, for what is not set here
	Metadata      map[string]string
	CorrelationID string
	IgnoreFreeze  string // for admins: why the lock is acquired although it is frozen
}

// Acquire acquires the lock on a key, or waits for it. Lock.Context is derived from ctx. The caller releases the lock.
func (c *Client) Acquire(ctx context.Context, key string, o Options) (*Lock, error) {
	return c.AcquireAll(ctx, []string{key}, o)
}

// AcquireAll acquires the locks on 1 to 16 keys, all of them or none, as one Lock.
//
// It asks in slices under one lock id, and the server keeps the place in the queue from one to the next. After a lost
// answer the same id finds the lock that it may have acquired.
//
//	ask --granted--------------------------> done
//	 ^  \--held--> the time is up ---------> leave the queue, done
//	 |        \--> ask again ----------+
//	 |  \--no answer--> too often -----|---> unavailable, or unknown
//	 |             \--> back off ------+
//	 +---------------------------------+
func (c *Client) AcquireAll(ctx context.Context, keys []string, o Options) (*Lock, error) {
	o.LockID = firstOf(o.LockID, newID())
	r := c.callFor(o, "/v1/acquire", keys, fields{"lock_id": o.LockID, "shared": o.Shared, "slots": o.Slots, "reentrant": o.Reentrant,
		"correlation_id": o.CorrelationID, "ignore_freeze": o.IgnoreFreeze != "", "reason": o.IgnoreFreeze})
	if len(c.servers) > 1 && o.TTL > 0 { // most of a lease that a server may have granted must be left at the next one
		r.timeout = maxDuration(o.TTL/3, answerMin)
	}
	giveUp := now() + minDuration(o.Wait, Forever)
	for faults, isAnswered := 0, false; ; {
		if o.Wait > 0 {
			r.wait = c.sliceOf(o, giveUp-now())
			r.body["wait_ms"] = r.wait
		}
		r.faults = faults
		got, err := askOnce[grants](ctx, c, r)
		switch {
		case err == nil:
			return c.hold(ctx, keys, got, r.sent, o)
		case ctx.Err() != nil:
		case errors.Is(err, ErrHeld), errors.Is(err, ErrFrozen):
			faults, isAnswered, r.mayBeDone = 0, true, false
			if now() >= giveUp {
				if o.Wait > 0 {
					_ = c.leave(keys, o.LockID)
				}
				return nil, r.conclude(ctx, err)
			}
			// A server whose queue is full answers at once. It reserves a lock for one second between two requests.
			sleep(ctx, minDuration(r.wait/2-(now()-r.sent), 500*time.Millisecond))
		case !isFault(err):
			return nil, r.conclude(ctx, err)
		default:
			isAnswered = isAnswered || errors.Is(err, ErrUnknown) || err.(*Error).Status != 0 // a server that was there is waited for
			if faults++; c.isEnough(r, faults) && !(isAnswered && now() < giveUp) {
				return nil, r.conclude(ctx, err)
			}
			c.backoff(ctx, faults)
		}
		if ctx.Err() != nil {
			e := &Error{Message: "the acquisition of " + quoted(keys) + " was cancelled", LockID: o.LockID, cause: ctx.Err()}
			if isFault(c.leave(keys, o.LockID)) {
				e.Message, e.kind = e.Message+", and no server could be told: it may be granted, until its lease ends", ErrUnknown
			}
			return nil, e
		}
	}
}

// Adopt takes over a lock by the id that another client handed over. The lock then has a new id, which is that of the
// options, a new owner and a new token. TTL and Metadata replace those of the lock if they are set.
func (c *Client) Adopt(ctx context.Context, key, lockID string, o Options) (*Lock, error) {
	return c.AdoptAll(ctx, []string{key}, lockID, o)
}

// AdoptAll is Adopt for keys that were acquired together.
func (c *Client) AdoptAll(ctx context.Context, keys []string, lockID string, o Options) (*Lock, error) {
	o.LockID = firstOf(o.LockID, newID())
	r := c.callFor(o, "/v1/adopt", keys, fields{"lock_id": lockID, "new_lock_id": o.LockID})
	got, err := ask[grants](ctx, c, r)
	if err != nil {
		return nil, err
	}
	return c.hold(ctx, keys, got, r.sent, o)
}

// callFor adds what acquire and adopt have in common. Each acquisition without an owner gets one of its own: the server
// gives up the place that it keeps between two requests of a wait if the same owner begins another one.
func (c *Client) callFor(o Options, path string, keys []string, body fields) *call {
	body["locked_by"], body["locked_by_name"] = firstOf(o.Owner, c.owner), firstOf(o.OwnerName, c.ownerName)
	if body["locked_by"] == "" {
		body["locked_by"] = fmt.Sprintf("%s/%d", c.process, nOwners.Add(1))
	}
	body["profile"], body["metadata"] = o.Profile, o.Metadata
	body["ttl_ms"], body["heartbeat_ms"], body["stale_after_ms"] = o.TTL, o.Heartbeat, o.StaleAfter
	r := post(path, body.about(keys))
	r.lockID = o.LockID
	return r
}

var nOwners atomic.Int64

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func newID() string {
	var bytes [16]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		panic("belay: the system has no random numbers: " + err.Error())
	}
	return hex.EncodeToString(bytes[:])
}

// sliceOf says how long the next request may wait: a lock that is granted late in a long one would not be valid long, and
// one of several servers, if it hangs, must not cost the place.
func (c *Client) sliceOf(o Options, left time.Duration) time.Duration {
	if o.TTL > 0 {
		left = minDuration(left, o.TTL/3)
	}
	if left < time.Millisecond {
		return time.Millisecond
	}
	if len(c.servers) > 1 {
		return minDuration(left, 2500*time.Millisecond)
	}
	return minDuration(left, 10*time.Second)
}

// leave gives up a place in the queue, or a lock that was granted this very moment. The caller's context may be over.
func (c *Client) leave(keys []string, lockID string) error {
	ctx, cancel := context.WithTimeout(c.background, leaveTimeout*time.Duration(len(c.servers)))
	defer cancel()
	r := post("/v1/release", fields{"lock_id": lockID, "outcome": Failed}.about(keys))
	r.timeout = leaveTimeout
	_, err := ask[Info](ctx, c, r)
	return err
}

func maxDuration(a, b time.Duration) time.Duration {
	if a > b {
		return a
	}
	return b
}

func minDuration(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}
