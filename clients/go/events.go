package belay

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
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
// stream goes on behind the last event that it received or, if it has received none, where it began.
type Events struct {
	C <-chan Event
	EventsOptions
	hasBegun bool // After is the id to go on behind, even if it is 0
	client   *Client
	ctx      context.Context
	cancel   context.CancelFunc
	err      error
}

// Events opens a stream: no event after it has returned is missed. The stream ends with ctx, or with Close.
func (c *Client) Events(ctx context.Context, o EventsOptions) (*Events, error) {
	s := &Events{client: c, EventsOptions: o, hasBegun: o.After != 0}
	s.ctx, s.cancel = context.WithCancel(ctx)
	first, err := s.connect(false)
	if err != nil {
		s.cancel()
		return nil, err
	}
	events := make(chan Event)
	s.C = events
	go s.run(first, events)
	return s, nil
}

// Close ends the stream.
func (s *Events) Close() { s.cancel() }

// Err returns why the stream ended, once C is closed.
func (s *Events) Err() error { return s.err }

// connection is one answer of a server: what ends it if nothing comes for too long, and its lines.
type connection struct {
	body    io.ReadCloser
	silence *time.Timer
	lines   *bufio.Scanner
}

func (s *Events) connect(isAgain bool) (*connection, error) {
	for faults := 1; ; faults++ {
		query := fields{"prefix": s.Prefix}
		if s.hasBegun {
			query["last_event_id"] = strconv.FormatInt(s.After, 10)
		}
		r := get("/v1/events" + query.query())
		ctx, cancel := context.WithCancel(s.ctx)
		silence := time.AfterFunc(s.client.limit(faults-1), cancel)
		response, err := s.client.open(ctx, r)
		if err == nil && response.StatusCode == http.StatusOK {
			c := &connection{response.Body, silence, bufio.NewScanner(response.Body)}
			c.lines.Buffer(nil, 2<<20)
			if s.readBeginning(c.lines) {
				return c, nil
			}
			err = r.fault(true, c.lines.Err())
			response.Body.Close()
		} else if err == nil {
			err = r.read(response, nil)
		}
		silence.Stop()
		cancel()
		if !isFault(err) || (s.client.isEnough(r, faults) && !isAgain) || !s.client.backoff(s.ctx, faults) {
			return nil, err
		}
	}
}

// readBeginning reads the id that a stream begins with. The stream goes on from there if it breaks before the first event.
func (s *Events) readBeginning(lines *bufio.Scanner) bool {
	for !s.hasBegun && lines.Scan() && lines.Text() != "" {
		if text := strings.TrimPrefix(lines.Text(), "id: "); text != lines.Text() {
			id, err := strconv.ParseInt(text, 10, 64)
			s.After, s.hasBegun = id, err == nil
		}
	}
	return s.hasBegun
}

// run passes on the events of one connection after the other. The data of each event is one line that says all.
func (s *Events) run(c *connection, events chan<- Event) {
	defer close(events)
	defer s.cancel()
	for s.err == nil {
		for c.silence.Reset(eventsSilence); c.lines.Scan(); c.silence.Reset(eventsSilence) {
			var event Event
			data := strings.TrimPrefix(c.lines.Text(), "data:")
			if data == c.lines.Text() || json.Unmarshal([]byte(data), &event) != nil {
				continue
			}
			c.silence.Stop() // the reader may take its time
			select {
			case events <- event:
				s.After = event.ID
			case <-s.ctx.Done():
			}
		}
		c.silence.Reset(0)
		c.body.Close()
		c, s.err = s.connect(true) // a server that was there is waited for
	}
}
