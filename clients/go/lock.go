package belay

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// Outcome is how the work under a lock ended.
type Outcome string

// The outcomes of a release.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
)

// Lock is a lock that this client holds, on one key or several. It may be used by several goroutines.
//
// The lease is counted on a clock that is never set and runs on during suspend, from before the request was sent, and
// only for as long as the server allows:
//
//	sent        answered                     deadline   end at the server
//	 +-------------+------ beat ---- beat ------+----------+------->
//	 |<---------------- valid_for_ms ---------->|
type Lock struct {
	client       *Client
	keys         []string
	id           string
	options      Options
	ctx, work    context.Context    // the user's, cancelled when the lock is lost or released; of background requests
	cancel, stop context.CancelFunc // of ctx, of work
	turn         sync.Mutex         // of renewals: their answers must not overtake each other

	mu                 sync.Mutex
	infos              []Info
	deadline, nextBeat time.Duration // on the clock of now(); the lock is not to be relied upon from the deadline on
	beatEvery          time.Duration
	isBeating          bool
	timer              *time.Timer // calls tick
	err                error       // why the lock is over; nil: it is held
}

// hold makes the Lock of a grant that was asked for at `sent`.
func (c *Client) hold(ctx context.Context, keys []string, got grants, sent time.Duration, o Options) (*Lock, error) {
	infos, err := got.on(keys)
	if err != nil {
		return nil, (&call{lockID: o.LockID}).conclude(ctx, err)
	}
	l := &Lock{client: c, keys: append([]string(nil), keys...), id: infos[0].LockID, options: o}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.work, l.stop = context.WithCancel(c.background)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extend(infos, sent)
	l.timer = time.AfterFunc(0, l.tick)
	if l.isOver() {
		_ = c.leave(keys, l.id)
		return nil, l.err
	}
	go l.watch()
	return l, nil
}

// extend counts the lease anew. With the mutex held.
func (l *Lock) extend(infos []Info, sent time.Duration) {
	valid := never
	for _, info := range infos {
		valid = minDuration(valid, info.ValidFor.Duration())
	}
	l.infos, l.deadline, l.nextBeat, l.beatEvery = infos, sent+valid, never, valid/3
	if l.options.Heartbeat > 0 {
		l.beatEvery = minDuration(l.beatEvery, l.options.Heartbeat)
	}
	if !l.options.NoHeartbeat {
		l.nextBeat = sent + l.beatEvery
	}
}

// tick does what is due. It ends the lock at its deadline, whatever a renewal in progress does.
func (l *Lock) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver() {
		return
	}
	at := now()
	if at >= l.nextBeat && !l.isBeating {
		l.isBeating = true
		go l.beat(minDuration((l.deadline-at)/4+200*time.Millisecond, l.client.timeout))
	}
	next := minDuration(l.deadline-at, time.Second) // Go's timers stand still while the machine is suspended
	if !l.isBeating {
		next = minDuration(next, l.nextBeat-at)
	}
	l.timer.Reset(next)
}

func (l *Lock) beat(timeout time.Duration) {
	err := l.renew(l.work, 0, timeout, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isBeating = l.work.Err() != nil // then there are no more renewals
	if err != nil && !l.isBeating {
		l.nextBeat = now() + minDuration(l.beatEvery/8+20*time.Millisecond, 5*time.Second)
		go l.client.warn(quoted(l.keys) + " was not renewed, trying again: " + err.Error())
	}
	l.timer.Reset(0)
}

// watch keeps a request open that is answered as soon as another client has ended the lock.
func (l *Lock) watch() {
	wait := time.Minute
	if len(l.client.servers) > 1 {
		wait = several // one that hangs must not hide a loss for long
	}
	for pause := 100 * time.Millisecond; sleep(l.work, pause); { // most of what a lock protects is over by then
		r := post("/v1/held", fields{"lock_id": l.id, "wait_ms": wait}.about(l.keys))
		r.isRead, r.wait, pause = true, wait, 100*time.Millisecond
		if _, err := askOnce[Info](l.work, l.client, r); isLoss(err) {
			_ = l.lose(err)
		} else if isFault(err) {
			l.client.leaveServer(r)
			pause = time.Second
		} else if err != nil {
			return // renewals show a loss, too
		}
	}
}

// renew sends a renewal. A refusal that proves a loss ends the lock.
func (l *Lock) renew(ctx context.Context, ttl, timeout time.Duration, tries int) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	r := post("/v1/renew", fields{"lock_id": l.id, "ttl_ms": ttl}.about(l.keys))
	r.timeout, r.tries = timeout, tries
	l.mu.Lock()
	before := l.deadline
	if ttl > 0 { // the server may shorten the lease, and the answer be lost; no margin is more than half of a ttl
		l.deadline = minDuration(before, now()+ttl/2)
		l.timer.Reset(0)
	}
	l.mu.Unlock()
	got, err := ask[grants](ctx, l.client, r)
	if isLoss(err) {
		return l.lose(err)
	}
	var infos []Info
	if err == nil {
		infos, err = got.on(l.keys)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver() {
		return l.err
	}
	if err == nil {
		l.extend(infos, r.sent)
	} else if !r.mayBeDone && !errors.Is(err, ErrUnknown) {
		l.deadline = before
	}
	l.timer.Reset(0)
	return err
}

// isOver compares the lease with the clock, too. With the mutex held.
func (l *Lock) isOver() bool {
	if l.err == nil && now() >= l.deadline {
		l.end(&Error{Message: quoted(l.keys) + " could not be renewed in time", LockID: l.id, kind: ErrLost})
	}
	return l.err != nil
}

// lose ends the lock because the server says so, and returns why the lock is over.
func (l *Lock) lose(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := why.(*Error); ok && l.err == nil {
		e.kind = ErrLost
		l.end(e)
	}
	return l.err
}

// end is final. With the mutex held.
func (l *Lock) end(why error) {
	l.err = why
	l.cancel()
	l.stop()
	l.timer.Stop()
}

// Context is derived from that of Acquire, and cancelled when the lock is lost or released: do the work with it. Its
// methods compare the lease with the clock.
func (l *Lock) Context() context.Context { return lockContext{l.ctx, l} }

type lockContext struct {
	context.Context
	lock *Lock
}

func (c lockContext) Err() error            { _ = c.lock.Err(); return c.Context.Err() }
func (c lockContext) Done() <-chan struct{} { _ = c.lock.Err(); return c.Context.Done() }

// Err asks no server. It returns nil while the lock is held, ErrReleased once it was released, and otherwise how it was
// lost: an *Error for which errors.Is(err, ErrLost) is true.
func (l *Lock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOver()
	return l.err
}

// ID returns the lock id. A client that is given it can renew, release or adopt the lock.
func (l *Lock) ID() string { return l.id }

// Infos returns what the server last said about the lock on each key.
func (l *Lock) Infos() []Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Info(nil), l.infos...)
}

// Token returns the fencing token of the only or first key, or why the lock is over. It is 0 if the store has no tokens.
// Those of several keys are in Infos.
func (l *Lock) Token() (int64, error) {
	if err := l.Err(); err != nil {
		return 0, err
	}
	return l.Infos()[0].Token, nil
}

// ValidFor returns how long the lock can be relied upon without a renewal; 0 if it is over.
func (l *Lock) ValidFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver() {
		return 0
	}
	return l.deadline - now()
}

// Check compares the lease with the clock, and asks the server whether the lock is held.
func (l *Lock) Check(ctx context.Context) error { return l.CheckFor(ctx, 0) }

// CheckFor is Check, and also fails with ErrLost if the lock is valid for less than d. That does not end the lock.
func (l *Lock) CheckFor(ctx context.Context, d time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	r := post("/v1/check", fields{"lock_id": l.id, "for_ms": d}.about(l.keys))
	r.isRead = true
	_, err := ask[Info](ctx, l.client, r)
	if isLoss(err) && d <= 0 {
		return l.lose(err)
	} else if err == nil {
		return l.Err()
	}
	return err
}

// Renew restarts the lease now, with a new ttl unless it is 0. Locks renew themselves unless NoHeartbeat is set.
func (l *Lock) Renew(ctx context.Context, ttl time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.renew(ctx, ttl, never, 3)
}

// Release releases the lock as completed. It also does so if ctx has ended, so that `defer lock.Release(ctx)` always
// works. If the lock was lost it returns how; a second release returns nil.
func (l *Lock) Release(ctx context.Context) error { return l.ReleaseAs(ctx, Completed) }

// ReleaseAs is Release with an outcome.
func (l *Lock) ReleaseAs(ctx context.Context, outcome Outcome) error {
	l.mu.Lock()
	if l.isOver() {
		defer l.mu.Unlock()
		if l.err == ErrReleased {
			return nil
		}
		return l.err
	}
	l.end(ErrReleased)
	l.mu.Unlock()
	if ctx.Err() != nil {
		limited, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		ctx = limited
	}
	r := post("/v1/release", fields{"lock_id": l.id, "outcome": outcome}.about(l.keys))
	r.tries = 6 // some three seconds, the time of a restart: the next client waits for it
	_, err := ask[Info](ctx, l.client, r)
	e, _ := err.(*Error)
	switch { // after a lost answer, it may be our own request that ended the lock
	case !isLoss(err):
	case !r.mayBeDone:
		e.kind = ErrLost
	case e.Code == "not_holder":
		e.kind, e.Message = ErrUnknown, "whether the lock was released is unknown: "+e.Message
	default:
		return nil
	}
	return err
}

// Run calls f with Lock.Context and then releases the lock: as failed if f returns an error or panics. It returns the
// error of f or, if that is none or of the context, how the lock was lost.
func (l *Lock) Run(ctx context.Context, f func(ctx context.Context) error) (err error) {
	outcome := Failed
	defer func() {
		if over := l.ReleaseAs(ctx, outcome); over != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = over
		}
	}()
	if err = f(l.Context()); err == nil {
		outcome = Completed
	}
	return err
}

func quoted(keys []string) string { return "lock '" + strings.Join(keys, "', '") + "'" }
