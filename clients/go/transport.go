package belay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"
)

// fields are those of a request. What is zero is not sent.
type fields map[string]any

func (f fields) sent() map[string]any {
	sent := map[string]any{}
	for name, value := range f {
		if d, ok := value.(time.Duration); ok { // rounded up: a positive one is never sent as none
			value = int64((d + time.Millisecond - 1) / time.Millisecond)
		}
		if !reflect.ValueOf(value).IsZero() {
			sent[name] = value
		}
	}
	return sent
}

// query makes the query of a path.
func (f fields) query() string {
	values := url.Values{}
	for name, value := range f.sent() {
		values.Set(name, fmt.Sprint(value))
	}
	return "?" + values.Encode()
}

// about adds one key, or several.
func (f fields) about(keys []string) fields {
	if len(keys) == 1 {
		f["key"] = keys[0]
	} else {
		f["keys"] = keys
	}
	return f
}

// call is one request, which may be sent several times.
type call struct {
	method, path, lockID string        // the path with its query, encoded; the id for errors: to repeat the request with
	body                 fields        // nil: none
	isRead               bool          // it changes nothing
	wait, timeout        time.Duration // the wait that it asks for; beyond it, if less than the client's limit
	tries                int           // at least one of each server
	faults               int           // in a row, before this attempt

	at        int64         // the index of the server that it was last sent to
	server    *server       // that server
	sent      time.Duration // now() before that
	mayBeDone bool          // an answer was lost
}

func newCall(method, path string, body fields) *call {
	return &call{method: method, path: path, body: body, isRead: method == "GET", timeout: never, tries: 3}
}

func post(path string, body fields) *call { return newCall("POST", path, body) }
func get(path string) *call               { return newCall("GET", path, nil) }

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-timer.Done()
	return ctx.Err() == nil
}

// limit says how long an answer may take: one of several servers may hang, and then the next one is asked soon.
func (c *Client) limit(faults int) time.Duration {
	if len(c.servers) > 1 && faults < len(c.servers) {
		return minDuration(c.timeout, several)
	}
	return c.timeout
}

// backoff pauses after so many faults in a row, once all servers have been tried.
func (c *Client) backoff(ctx context.Context, faults int) bool {
	pause := time.Second
	if rounds := faults / len(c.servers); faults%len(c.servers) != 0 {
		pause = 0
	} else if rounds < 5 {
		pause = 50 * time.Millisecond << rounds
	}
	return sleep(ctx, pause)
}

// ask sends a request until it is answered, or often enough.
func ask[T any](ctx context.Context, c *Client, r *call) (T, error) {
	for faults := 1; ; faults++ {
		r.faults = faults - 1
		got, err := askOnce[T](ctx, c, r)
		if !isFault(err) || c.isEnough(r, faults) || !c.backoff(ctx, faults) {
			return got, r.conclude(ctx, err)
		}
	}
}

// leaveServer makes the next request go to the next server, after a fault of this one.
func (c *Client) leaveServer(r *call) {
	c.current.CompareAndSwap(r.at, (r.at+1)%int64(len(c.servers)))
}

// isEnough reports, after so many faults in a row, whether to give up. The next request goes to the next server.
func (c *Client) isEnough(r *call, faults int) bool {
	c.leaveServer(r)
	return faults >= r.tries && faults >= len(c.servers)
}

// conclude makes the error of a request that is not sent again: a later fault does not undo what may have happened.
func (r *call) conclude(ctx context.Context, err error) error {
	if e, ok := err.(*Error); ok {
		e.LockID = r.lockID
		if ctx.Err() != nil {
			e.cause = ctx.Err()
		}
		if r.mayBeDone && e.kind == ErrUnavailable {
			e.kind, e.Message = ErrUnknown, "an answer was lost, and it may have happened; then: "+e.Message
		}
	}
	return err
}

// askOnce sends a request to the server in use.
func askOnce[T any](ctx context.Context, c *Client, r *call) (got T, err error) {
	limited, cancel := context.WithTimeout(ctx, r.wait+minDuration(r.timeout, c.limit(r.faults)))
	defer cancel()
	response, err := c.open(limited, r)
	if err == nil {
		err = r.read(response, &got)
	}
	r.mayBeDone = r.mayBeDone || errors.Is(err, ErrUnknown)
	return got, err
}

// open sends a request and returns the answer, of which only the headers were read.
func (c *Client) open(ctx context.Context, r *call) (*http.Response, error) {
	r.at = c.current.Load()
	r.server = c.servers[r.at]
	var isConnected atomic.Bool // without a connection nothing was sent
	var body io.Reader
	if text, err := json.Marshal(r.body.sent()); err == nil && r.body != nil {
		body = bytes.NewReader(text)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isConnected.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, r.method, r.server.base+r.path, body)
	if err != nil {
		return nil, invalid(err, "the request cannot be made")
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if len(c.servers) > 1 {
		store, _ := c.store.Load().(string)
		request.Header.Set("Belay-Store", firstOf(store, "?"))
	}
	r.sent = now()
	response, err := r.server.http.Do(request)
	if err != nil {
		return nil, r.fault(isConnected.Load(), err)
	}
	if store := response.Header.Get("Belay-Store"); store != "" {
		c.store.CompareAndSwap(nil, store)
	}
	if response.Header.Get("Belay-Locking") == "off" && !c.isOff.Swap(true) {
		c.warn("locking is switched off at the server " + r.server.name + ": its locks protect nothing")
	}
	return response, nil
}

// fault makes the error of a request without a whole answer.
func (r *call) fault(mayBeDone bool, cause error) error {
	e := &Error{Message: r.server.name + " gave no answer", kind: ErrUnavailable, cause: cause}
	if mayBeDone && !r.isRead {
		e.Message, e.kind = e.Message+", and it may have happened", ErrUnknown
	}
	return e
}

// read reads the whole answer: into out, or as an error.
func (r *call) read(response *http.Response, out any) error {
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return r.fault(true, err)
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, out); err != nil {
			return r.fault(true, fmt.Errorf("what came is not of a belay server: %w", err))
		}
		return nil
	}
	refusal := struct{ Error Error }{Error{Message: fmt.Sprintf("%s answers with %s", r.server.name, response.Status)}}
	_ = json.Unmarshal(text, &refusal) // what is not JSON keeps this message
	e := &refusal.Error
	e.Status, e.kind = response.StatusCode, kindOf(response.StatusCode, e.Code, r.isRead)
	return e
}
