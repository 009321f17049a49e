// Command driver plays one client of a scenario: clients/scenarios/README.md describes what it reads and writes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"belay.example/belay"
)

// duration is a text such as "300ms".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	*d = duration(value)
	return err
}

// line is one request; each kind of it has some of the fields.
type line struct {
	Do           string            `json:"do"`
	URLs         []string          `json:"urls"`
	Token        json.RawMessage   `json:"token"` // a text for connect, a number for check
	TokenFile    string            `json:"token_file"`
	CAFile       string            `json:"ca_file"`
	Timeout      duration          `json:"timeout"`
	Owner        string            `json:"owner"`
	OwnerName    string            `json:"owner_name"`
	Lock         string            `json:"lock"`
	Key          string            `json:"key"`
	Keys         []string          `json:"keys"`
	LockID       string            `json:"lock_id"`
	TTL          duration          `json:"ttl"`
	Wait         duration          `json:"wait"`
	Shared       bool              `json:"shared"`
	Slots        *int              `json:"slots"`
	Reentrant    bool              `json:"reentrant"`
	Metadata     map[string]string `json:"metadata"`
	IgnoreFreeze string            `json:"ignore_freeze"`
	Heartbeat    string            `json:"heartbeat"`
	CancelAfter  duration          `json:"cancel_after"`
	Hold         duration          `json:"hold"`
	Fail         string            `json:"fail"`
	Outcome      belay.Outcome     `json:"outcome"`
	For          duration          `json:"for"`
	Until        time.Time         `json:"until"`
	Reason       string            `json:"reason"`
	Prefix       string            `json:"prefix"`
	Status       string            `json:"status"`
	Page         int               `json:"page"`
	Limit        int               `json:"limit"`
	Stream       string            `json:"stream"`
	After        int64             `json:"after"`
	Within       duration          `json:"within"`
	Pattern      string            `json:"pattern"`
	What         string            `json:"what"`
}

type object map[string]any

var errTimeout = errors.New("no event came in time")

// bodyError is the error of a `with` block's body.
type bodyError struct{ text string }

func (e bodyError) Error() string { return e.text }

type driver struct {
	client  *belay.Client
	locks   map[string]*belay.Lock
	streams map[string]*belay.Events
	writing sync.Mutex
}

func (d *driver) write(value any) {
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		os.Exit(1)
	}
}

func codeOf(err error) string {
	var body bodyError
	switch {
	case errors.As(err, &body):
		return "body"
	case errors.Is(err, errTimeout):
		return "timeout"
	case errors.Is(err, belay.ErrUnknown):
		return "unknown"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, belay.ErrHeld):
		return "held"
	case errors.Is(err, belay.ErrFrozen):
		return "frozen"
	case errors.Is(err, belay.ErrLost), errors.Is(err, belay.ErrReleased):
		return "lost"
	case errors.Is(err, belay.ErrIDUsed):
		return "id_used"
	case errors.Is(err, belay.ErrNotFound):
		return "not_found"
	case errors.Is(err, belay.ErrNotPermitted):
		return "forbidden"
	case errors.Is(err, belay.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, belay.ErrInvalid):
		return "invalid"
	}
	return "driver"
}

func describe(err error) object {
	answer := object{"code": codeOf(err), "message": err.Error()}
	var e *belay.Error
	if errors.As(err, &e) {
		if e.LockID != "" {
			answer["lock_id"] = e.LockID
		}
		if e.Lock != nil {
			answer["holder"] = e.Lock.LockedBy
		}
	}
	return answer
}

func (d *driver) connect(in line) (any, error) {
	options := []belay.Option{belay.WithOwner(in.Owner, in.OwnerName), belay.WithTokenFile(in.TokenFile),
		belay.WithWarning(func(text string) { fmt.Fprintln(os.Stderr, text) })}
	if in.CAFile != "" {
		options = append(options, belay.WithCAFile(in.CAFile))
	}
	if in.Timeout != 0 {
		options = append(options, belay.WithTimeout(time.Duration(in.Timeout)))
	}
	if in.Token != nil {
		var token string
		if err := json.Unmarshal(in.Token, &token); err != nil {
			return nil, err
		}
		options = append(options, belay.WithToken(token))
	}
	client, err := belay.Connect(strings.Join(in.URLs, ","), options...)
	d.client = client
	return object{}, err
}

// take acquires or adopts a lock.
func (d *driver) take(in line) (*belay.Lock, error) {
	ctx := context.Background()
	if in.CancelAfter != 0 {
		cancellable, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(time.Duration(in.CancelAfter), cancel).Stop()
		ctx = cancellable
	}
	keys := in.Keys
	if keys == nil {
		keys = []string{in.Key}
	}
	options := belay.Options{TTL: time.Duration(in.TTL), Wait: time.Duration(in.Wait), LockID: in.LockID, Shared: in.Shared,
		Reentrant: in.Reentrant, Metadata: in.Metadata, IgnoreFreeze: in.IgnoreFreeze,
		NoHeartbeat: in.Heartbeat == "off"}
	if in.Slots != nil && *in.Slots == 0 {
		options.Slots = -1 // in Go, 0 means that there are none; this is refused in the same way
	} else if in.Slots != nil {
		options.Slots = *in.Slots
	}
	if in.Do == "adopt" {
		options.LockID = ""
		return d.client.AdoptAll(ctx, keys, in.LockID, options)
	}
	return d.client.AcquireAll(ctx, keys, options)
}

func (d *driver) acquire(in line) (any, error) {
	lock, err := d.take(in)
	if err != nil {
		return nil, err
	}
	d.locks[in.Lock] = lock
	go func() {
		<-lock.Context().Done()
		if err := lock.Err(); errors.Is(err, belay.ErrLost) {
			d.write(object{"event": "lost", "lock": in.Lock, "reason": err.Error()})
		}
	}()
	answer := object{"lock_id": lock.ID(), "valid_for_ms": lock.ValidFor().Milliseconds()}
	tokens := object{}
	for _, info := range lock.Infos() {
		answer["key"], answer["token"] = info.Key, info.Token
		tokens[info.Key] = info.Token
	}
	if in.Keys != nil {
		answer["keys"], answer["tokens"] = in.Keys, tokens
	}
	return answer, nil
}

func (d *driver) with(in line) (any, error) {
	lock, err := d.take(in)
	if err != nil {
		return nil, err
	}
	token, err := lock.Token()
	if err != nil {
		return nil, err
	}
	return object{"token": token}, lock.Run(context.Background(), func(ctx context.Context) error {
		select {
		case <-time.After(time.Duration(in.Hold)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if in.Fail != "" {
			return bodyError{in.Fail}
		}
		return nil
	})
}

func (d *driver) check(ctx context.Context, in line) (any, error) {
	if in.Lock != "" {
		lock, err := d.lock(in)
		if err != nil {
			return nil, err
		}
		err = lock.CheckFor(ctx, time.Duration(in.For))
		return object{"valid_for_ms": lock.ValidFor().Milliseconds()}, err
	}
	options := belay.CheckOptions{LockID: in.LockID, For: time.Duration(in.For)}
	if in.Token != nil {
		if err := json.Unmarshal(in.Token, &options.Token); err != nil {
			return nil, err
		}
	}
	info, err := d.client.Check(ctx, in.Key, options)
	if err != nil {
		return nil, err
	}
	return object{"valid_for_ms": info.ValidFor}, nil
}

func (d *driver) next(in line) (any, error) {
	stream := d.streams[in.Stream]
	if stream == nil {
		return nil, fmt.Errorf("there is no stream '%s'", in.Stream)
	}
	select {
	case event, ok := <-stream.C:
		if !ok {
			return nil, stream.Err()
		}
		return event, nil
	case <-time.After(time.Duration(in.Within)):
		return nil, errTimeout
	}
}

func (d *driver) lock(in line) (*belay.Lock, error) {
	if lock := d.locks[in.Lock]; lock != nil {
		return lock, nil
	}
	return nil, fmt.Errorf("there is no lock '%s'", in.Lock)
}

// onLock does what needs a lock that was acquired before.
func (d *driver) onLock(ctx context.Context, in line) (any, error) {
	lock, err := d.lock(in)
	if err != nil {
		return nil, err
	}
	switch in.Do {
	case "renew":
		err = lock.Renew(ctx, time.Duration(in.TTL))
		return object{"valid_for_ms": lock.ValidFor().Milliseconds()}, err
	case "release":
		if in.Outcome == "" {
			return object{}, lock.Release(ctx)
		}
		return object{}, lock.ReleaseAs(ctx, in.Outcome)
	}
	return object{"held": lock.Context().Err() == nil}, nil
}

func (d *driver) do(in line) (any, error) {
	ctx := context.Background()
	switch in.Do {
	case "connect":
		return d.connect(in)
	case "acquire", "adopt":
		return d.acquire(in)
	case "with":
		return d.with(in)
	case "renew", "release", "is_held":
		return d.onLock(ctx, in)
	case "check":
		return d.check(ctx, in)
	case "force":
		return d.client.Force(ctx, in.Key, belay.ForceOptions{Reason: in.Reason, LockID: in.LockID})
	case "status":
		return d.client.Status(ctx, in.Key)
	case "list":
		return d.client.List(ctx, belay.ListOptions{Prefix: in.Prefix, Status: in.Status, PageSize: in.Page})
	case "history":
		return d.client.History(ctx, in.Key, in.Limit)
	case "events":
		stream, err := d.client.Events(ctx, belay.EventsOptions{Prefix: in.Prefix, After: in.After})
		d.streams[in.Stream] = stream
		return object{}, err
	case "next":
		return d.next(in)
	case "close":
		d.streams[in.Stream].Close()
		return object{}, nil
	case "freeze":
		return d.client.Freeze(ctx, belay.FreezeOptions{Pattern: in.Pattern, Reason: in.Reason, For: time.Duration(in.For), Until: in.Until})
	case "unfreeze":
		return d.client.Unfreeze(ctx, in.What, "")
	case "freezes":
		return d.client.Freezes(ctx)
	}
	return nil, fmt.Errorf("'%s' is not something that a driver can do", in.Do)
}

func main() {
	d := &driver{locks: map[string]*belay.Lock{}, streams: map[string]*belay.Events{}}
	d.write(object{"ready": "go 0.1.0"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var in line
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil { // such as a ttl that is no duration
			d.write(object{"error": object{"code": "invalid", "message": err.Error()}})
			continue
		}
		if answer, err := d.do(in); err != nil {
			d.write(object{"error": describe(err)})
		} else {
			d.write(object{"ok": answer})
		}
	}
}
