package belay

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
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

// Events is a stream of events. After a break it goes on behind the last event that it received. If it has received
// none and After is 0, it goes on with the next one, and those during the break are not seen.
type Events struct {
	client *Client
	EventsOptions
	ctx    context.Context
	cancel context.CancelFunc
	events chan Event
	err    error // why the stream ended; to be read once events is closed
}

// Events opens a stream: no event after it has returned is missed. The stream ends with ctx.
func (c *Client) Events(ctx context.Context, o EventsOptions) (*Events, error) {
	s := &Events{client: c, EventsOptions: o, events: make(chan Event)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	lines, err := s.connect(defaultTries * len(c.servers))
	if err != nil {
		s.cancel()
		return nil, err
	}
	go s.run(lines)
	return s, nil
}

// Next returns the next event. If ctx ends first, the stream stays usable.
func (s *Events) Next(ctx context.Context) (Event, error) {
	select {
	case event, ok := <-s.events:
		if !ok {
			return event, s.err
		}
		return event, nil
	case <-ctx.Done():
		return Event{}, ctx.Err()
	}
}

// Close ends the stream.
func (s *Events) Close() { s.cancel() }

// stream is one connection. It is cancelled if nothing comes for too long.
type stream struct {
	*bufio.Scanner
	silence *time.Timer
	close   func()
}

func (s *Events) connect(tries int) (*stream, error) {
	for faults := 1; ; faults++ {
		lines, err := s.connectOnce()
		if !isFault(err) || faults == tries || !s.client.backoff(s.ctx, faults) {
			return lines, err
		}
	}
}

func (s *Events) connectOnce() (*stream, error) {
	query := url.Values{"prefix": {s.Prefix}}
	if s.After != 0 {
		query.Set("last_event_id", strconv.FormatInt(s.After, 10))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	silence := time.AfterFunc(s.client.timeout, cancel)
	r := get("/v1/events?" + query.Encode())
	response, server, err := s.client.open(ctx, r)
	if err == nil && response.StatusCode != http.StatusOK {
		err = s.client.read(response, server, r, nil)
	}
	if err != nil {
		cancel()
		silence.Stop()
		return nil, err
	}
	silence.Reset(eventsSilence)
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 2<<20)
	return &stream{scanner, silence, func() { cancel(); silence.Stop(); response.Body.Close() }}, nil
}

func (s *Events) run(lines *stream) {
	defer close(s.events)
	for s.err == nil {
		s.deliver(lines)
		lines, s.err = s.connect(0) // a server that was there is waited for
	}
}

// deliver passes on the events of one connection until it breaks. The data of each is one line that says all.
func (s *Events) deliver(lines *stream) {
	defer lines.close()
	for lines.Scan() {
		var event Event
		data := strings.TrimPrefix(lines.Text(), "data:")
		if data != lines.Text() && json.Unmarshal([]byte(data), &event) == nil {
			lines.silence.Stop() // the reader may take its time
			select {
			case s.events <- event:
				s.After = event.ID
			case <-s.ctx.Done():
				return
			}
		}
		lines.silence.Reset(eventsSilence)
	}
}
