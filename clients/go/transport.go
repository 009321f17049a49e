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
	"reflect"
	"sync/atomic"
	"time"
)

const (
	defaultTries = 3 // of each server
	releaseTries = 6 // some three seconds, the time of a restart: the next client waits for it
)

// fields is the body of a request; those that are zero are not sent.
type fields map[string]any

func (f fields) reader() io.Reader {
	set := map[string]any{}
	for name, value := range f {
		if d, ok := value.(time.Duration); ok { // rounded up: a positive one is never sent as none
			value = int64((d + time.Millisecond - 1) / time.Millisecond)
		}
		if !reflect.ValueOf(value).IsZero() {
			set[name] = value
		}
	}
	text, err := json.Marshal(set)
	if err != nil || f == nil {
		return nil // texts, numbers and times can always be written
	}
	return bytes.NewReader(text)
}

// call is one request, which may be sent several times.
type call struct {
	method, path string        // the path with its query, encoded
	body         fields        // nil: none
	isRead       bool          // it changes nothing
	wait         time.Duration // that it asks for
	timeout      time.Duration // beyond wait; 0: that of the client
	tries        int           // 0: the usual number

	sent      time.Duration // now() before it was last sent
	mayBeDone bool          // an answer was lost
}

func post(path string, body fields) *call { return &call{method: "POST", path: path, body: body} }
func get(path string) *call               { return &call{method: "GET", path: path, isRead: true} }

func (r *call) lockID() string {
	if id, ok := r.body["new_lock_id"].(string); ok {
		return id
	}
	id, _ := r.body["lock_id"].(string)
	return id
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff pauses after so many faults in a row, once all servers have been tried.
func (c *Client) backoff(ctx context.Context, faults int) bool {
	rounds := faults / len(c.servers)
	if faults%len(c.servers) != 0 {
		return ctx.Err() == nil
	}
	if rounds > 4 {
		return sleep(ctx, time.Second)
	}
	return sleep(ctx, 50*time.Millisecond<<rounds)
}

// ask sends a request until it is answered, or often enough.
func (c *Client) ask(ctx context.Context, r *call) (answer, error) {
	if r.tries == 0 {
		r.tries = defaultTries
	}
	for faults := 1; ; faults++ {
		got, err := c.askOnce(ctx, r)
		if !isFault(err) || faults >= r.tries*len(c.servers) || !c.backoff(ctx, faults) {
			return got, r.conclude(err)
		}
	}
}

// conclude makes the error of a request that is not sent again: a later fault does not undo what may have happened.
func (r *call) conclude(err error) error {
	if e, ok := err.(*Error); ok && r.mayBeDone && e.kind == ErrUnavailable {
		e.kind, e.Message = ErrUnknown, "an answer was lost, and it may have happened; then: "+e.Message
	}
	return err
}

// askOnce sends a request to the server in use. After a fault, the next one goes to the next server.
func (c *Client) askOnce(ctx context.Context, r *call) (got answer, err error) {
	timeout := r.timeout
	if timeout == 0 {
		timeout = c.timeout
	}
	limited, cancel := context.WithTimeout(ctx, r.wait+timeout)
	defer cancel()
	response, s, err := c.open(limited, r)
	if err == nil {
		err = c.read(response, s, r, &got)
	}
	r.mayBeDone = r.mayBeDone || errors.Is(err, ErrUnknown)
	if e, ok := err.(*Error); ok && ctx.Err() != nil {
		e.cause = ctx.Err() // rather than the error of the timeout
	}
	return got, err
}

// open sends a request and returns the answer, of which only the headers were read.
func (c *Client) open(ctx context.Context, r *call) (*http.Response, *server, error) {
	at := c.current.Load()
	s := c.servers[at]
	var isConnected atomic.Bool // without a connection nothing was sent
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isConnected.Store(true) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.method, s.base+r.path, r.body.reader())
	if err != nil {
		return nil, s, invalid(err, "the request cannot be made")
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	r.sent = now()
	response, err := s.http.Do(request)
	if err != nil {
		return nil, s, c.fault(s, r, isConnected.Load(), err)
	}
	if response.Header.Get("Belay-Locking") == "off" && !c.isOff.Swap(true) {
		c.warn("locking is switched off at the server " + s.name + ": its locks protect nothing")
	}
	return response, s, nil
}

func (c *Client) fault(s *server, r *call, mayBeDone bool, cause error) error {
	c.leaveServer(s)
	if mayBeDone && !r.isRead {
		return &Error{Message: s.name + " gave no answer, and it may have happened", LockID: r.lockID(), kind: ErrUnknown, cause: cause}
	}
	return &Error{Message: s.name + " gives no answer", LockID: r.lockID(), kind: ErrUnavailable, cause: cause}
}

// leaveServer makes the server after s the one in use, unless another goroutine has.
func (c *Client) leaveServer(s *server) {
	at := c.current.Load()
	if c.servers[at] == s {
		c.current.CompareAndSwap(at, (at+1)%int64(len(c.servers)))
	}
}

// read reads the whole answer: into out, or as an error.
func (c *Client) read(response *http.Response, s *server, r *call, out *answer) error {
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return c.fault(s, r, true, err)
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, out); err != nil {
			return invalid(err, "%s does not answer as a belay server does", s.name)
		}
		return nil
	}
	refusal := struct{ Error Error }{Error{Message: fmt.Sprintf("%s answers with status %d", s.name, response.StatusCode)}}
	_ = json.Unmarshal(text, &refusal) // what is not JSON keeps this message
	e := &refusal.Error
	e.Status, e.LockID, e.kind = response.StatusCode, r.lockID(), kindOf(response.StatusCode, e.Code, r.isRead)
	if isFault(e) {
		c.leaveServer(s)
	}
	return e
}
