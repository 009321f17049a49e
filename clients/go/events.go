package belay

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const eventsSilence = 45 * time.Second // the server sends a comment every 15 s

// EventsOptions selects events.
type EventsOptions struct {
	Prefix string // of the key
	After  int64  // begin after the event with this id; 0: with the next one
}

// Events is a stream of events, which come on C. C is closed when the stream ends; then Err says why. After a break the
// stream goes on behind the last event that it received. If it has received none and After is 0, it goes on with the
// next event, and those during the break are not seen.
type Events struct {
	C <-chan Event
	EventsOptions
	client *Client
	ctx    context.Context
	cancel context.CancelFunc
	err    error
}

// Events opens a stream: no event after it has returned is missed. The stream ends with ctx, or with Close.
func (c *Client) Events(ctx context.Context, o EventsOptions) (*Events, error) {
	s := &Events{client: c, EventsOptions: o}
	s.ctx, s.cancel = context.WithCancel(ctx)
	body, silence, err := s.connect(false)
	if err != nil {
		s.cancel()
		return nil, err
	}
	events := make(chan Event)
	s.C = events
	go s.run(body, silence, events)
	return s, nil
}

// Close ends the stream.
func (s *Events) Close() { s.cancel() }

// Err returns why the stream ended, once C is closed.
func (s *Events) Err() error { return s.err }

// connect returns the body of an answer, and what ends it if nothing comes for too long.
func (s *Events) connect(isAgain bool) (body io.ReadCloser, silence *time.Timer, err error) {
	r := get("/v1/events" + fields{"prefix": s.Prefix, "last_event_id": s.After}.query())
	for faults := 1; ; faults++ {
		ctx, cancel := context.WithCancel(s.ctx)
		silence = time.AfterFunc(s.client.timeout, cancel)
		response, err := s.client.open(ctx, r)
		if err == nil && response.StatusCode == http.StatusOK {
			return response.Body, silence, nil
		}
		if err == nil {
			err = r.read(response, nil)
		}
		cancel()
		if !isFault(err) || (s.client.isEnough(r, faults) && !isAgain) || !s.client.backoff(s.ctx, faults) {
			return nil, nil, err
		}
	}
}

// run passes on the events of one connection after the other. The data of each event is one line that says all.
func (s *Events) run(body io.ReadCloser, silence *time.Timer, events chan<- Event) {
	defer close(events)
	defer s.cancel()
	for s.err == nil {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 2<<20)
		for silence.Reset(eventsSilence); lines.Scan(); silence.Reset(eventsSilence) {
			var event Event
			data := strings.TrimPrefix(lines.Text(), "data:")
			if data == lines.Text() || json.Unmarshal([]byte(data), &event) != nil {
				continue
			}
			silence.Stop() // the reader may take its time
			select {
			case events <- event:
				s.After = event.ID
			case <-s.ctx.Done():
			}
		}
		silence.Reset(0)
		body.Close()
		body, silence, s.err = s.connect(true) // a server that was there is waited for
	}
}
