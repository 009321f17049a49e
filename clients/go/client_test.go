package belay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"belay.example/belay/internal/servertest"
)

var background = context.Background()

func connect(t *testing.T, url string, options ...Option) *Client {
	t.Helper()
	client, err := Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func mustAcquire(t *testing.T, c *Client, key string, o Options) *Lock {
	t.Helper()
	lock, err := c.Acquire(background, key, o)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// proxy passes requests on to a server, but loses the answers to those for which drops returns true.
func proxy(t *testing.T, server string, drops func(r *http.Request) bool) string {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !drops(r) {
			pass.ServeHTTP(w, r)
			return
		}
		pass.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(p.Close)
	return p.URL
}

// expire ends the lease without a timer, as a suspend does, in which no timer of Go runs.
func expire(t *testing.T, lock *Lock) {
	t.Helper()
	lock.mu.Lock()
	for lock.err == nil && !lock.timer.Stop() { // it runs: let it end
		lock.mu.Unlock()
		time.Sleep(time.Millisecond)
		lock.mu.Lock()
	}
	defer lock.mu.Unlock()
	lock.deadline, lock.err = now(), nil
}

func TestEverythingOfALockLooksAtTheClock(t *testing.T) {
	lock := mustAcquire(t, connect(t, servertest.Start(t)), "k", Options{TTL: time.Minute})
	looks := map[string]func() bool{
		"Token":    func() bool { _, err := lock.Token(); return errors.Is(err, ErrLost) },
		"Err":      func() bool { return errors.Is(lock.Err(), ErrLost) },
		"ValidFor": func() bool { return lock.ValidFor() == 0 },
		"Check":    func() bool { return errors.Is(lock.Check(background), ErrLost) },
		"Renew":    func() bool { return errors.Is(lock.Renew(background, 0), ErrLost) },
		"Release":  func() bool { return errors.Is(lock.Release(background), ErrLost) },
	}
	for name, looks := range looks {
		if expire(t, lock); !looks() {
			t.Errorf("%s relies on a lease that is over", name)
		}
	}
}

func TestContextIsDoneOnceTheLeaseIsOver(t *testing.T) {
	lock := mustAcquire(t, connect(t, servertest.Start(t)), "k", Options{TTL: time.Minute})
	expire(t, lock)
	if ctx := lock.Context(); ctx.Err() == nil {
		t.Error("Err does not look at the clock")
	}
	derived, cancel := context.WithCancel(lock.Context())
	defer cancel()
	if derived.Err() == nil {
		t.Error("a context that is derived from it is not cancelled")
	}
}

func TestDoneOfTheContextLooksAtTheClock(t *testing.T) {
	lock := mustAcquire(t, connect(t, servertest.Start(t)), "k", Options{TTL: time.Minute})
	expire(t, lock)
	select {
	case <-lock.Context().Done():
	default:
		t.Error("it is not done")
	}
}

func TestWhatMayHaveHappenedStaysUnknownWhenTheServerIsGone(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	_, err := connect(t, server.URL).Acquire(background, "k", Options{LockID: "mine"})
	var e *Error
	if !errors.Is(err, ErrUnknown) || !errors.As(err, &e) || e.LockID != "mine" || requests != 3 {
		t.Errorf("after %d requests: %v", requests, err)
	}
}

func TestContextHasTheValuesAndTheEndOfThatOfAcquire(t *testing.T) {
	type name struct{}
	ctx, cancel := context.WithCancel(context.WithValue(background, name{}, "value"))
	lock, err := connect(t, servertest.Start(t)).Acquire(ctx, "k", Options{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if lock.Context().Value(name{}) != "value" || lock.Context().Err() != nil {
		t.Error("the context is not derived")
	}
	cancel()
	if lock.Context().Err() == nil || lock.Err() != nil {
		t.Errorf("after the end of the caller's context: context %v, lock %v", lock.Context().Err(), lock.Err())
	}
	if err := lock.Release(ctx); err != nil { // although the context has ended
		t.Fatal(err)
	}
	if info, err := lock.client.Status(background, "k"); err != nil || info.Status != "released" {
		t.Errorf("the lock is %s, %v", info.Status, err)
	}
	if lock.Err() != ErrReleased || lock.Release(ctx) != nil {
		t.Error("a second release is no error, and the lock stays released")
	}
}

func TestGoroutinesOfOneClientWaitForEachOther(t *testing.T) {
	client := connect(t, servertest.Start(t))
	var holders, most atomic.Int64
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			lock, err := client.Acquire(background, "k", Options{TTL: 10 * time.Second, Wait: 20 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			if n := holders.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(10 * time.Millisecond)
			holders.Add(-1)
			if err := lock.Release(background); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d held the lock at the same time", most.Load())
	}
}

func TestGoroutinesThatNameNoOwnerHaveAPlaceInTheQueueEach(t *testing.T) {
	client := connect(t, servertest.Start(t))
	holder := mustAcquire(t, client, "k", Options{TTL: time.Minute}).Infos()[0].LockedBy
	ctx, cancel := context.WithCancel(background)
	var all sync.WaitGroup
	for i := 0; i < 3; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := client.Acquire(ctx, "k", Options{TTL: time.Minute, Wait: Forever}); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled wait ended with %v", err)
			}
		}()
	}
	waiting := func(n int) func() bool {
		return func() bool {
			info, err := client.Status(background, "k")
			return err == nil && len(info.Waiting) == n
		}
	}
	servertest.Until(t, "a queue of three", waiting(3))
	info, _ := client.Status(background, "k")
	owners := map[string]bool{holder: true}
	for _, waiter := range info.Waiting {
		owners[waiter.LockedBy] = true
	}
	if len(owners) != 4 { // between two requests, a wait of the same owner would take their places away
		t.Errorf("the owners are %v", owners)
	}
	cancel()
	all.Wait()
	servertest.Until(t, "an empty queue", waiting(0))
}

func TestAShorterLeaseIsCountedEvenIfTheAnswerWasLost(t *testing.T) {
	url := proxy(t, servertest.Start(t), func(r *http.Request) bool { return r.URL.Path == "/v1/renew" })
	lock := mustAcquire(t, connect(t, url), "k", Options{TTL: time.Hour})
	if err := lock.Renew(background, 4*time.Second); !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	if valid := lock.ValidFor(); valid > 4*time.Second {
		t.Errorf("the lock is relied upon for %s", valid)
	}
}

func TestForceAfterALostAnswerEndsNoLaterLock(t *testing.T) {
	server := servertest.Start(t)
	direct := connect(t, server)
	first := mustAcquire(t, direct, "k", Options{TTL: time.Hour, LockID: "first"})
	var lost atomic.Int64
	url := proxy(t, server, func(r *http.Request) bool { return r.Method == "DELETE" && lost.Add(1) == 1 })
	done := make(chan *Lock)
	go func() {
		servertest.Until(t, "the forced unlock", func() bool { return first.Err() != nil })
		lock, err := direct.Acquire(background, "k", Options{TTL: time.Hour, LockID: "second"})
		if err != nil {
			t.Error(err)
		}
		done <- lock
	}()
	_, err := connect(t, url).Force(background, "k", ForceOptions{Reason: "test"})
	second := <-done
	if second == nil || second.Check(background) != nil {
		t.Errorf("the lock of the next holder was ended; the result of Force: %v", err)
	}
	if lost.Load() < 2 {
		t.Error("the request was not repeated")
	}
}

func TestWhereLockingIsSwitchedOffEveryLockIsGrantedWithAWarning(t *testing.T) {
	var warnings atomic.Int64
	client := connect(t, servertest.Start(t, "BELAY_DISABLED=1"), WithWarning(func(string) { warnings.Add(1) }))
	one, other := mustAcquire(t, client, "k", Options{TTL: time.Second}), mustAcquire(t, client, "k", Options{TTL: time.Second})
	first := now()
	servertest.Until(t, "the end of the first lease", func() bool { return now() > first+time.Second })
	if one.Err() != nil || other.Err() != nil {
		t.Errorf("%v, %v", one.Err(), other.Err())
	}
	if token, err := one.Token(); token != 0 || err != nil {
		t.Errorf("token %d, %v", token, err)
	}
	if err := one.Release(background); err != nil {
		t.Error(err)
	}
	if warnings.Load() != 1 {
		t.Errorf("%d warnings, expected one", warnings.Load())
	}
}

func TestAWaitOutlastsARestartOfTheServerEvenBeforeItsFirstAnswer(t *testing.T) {
	var lost atomic.Int64
	server := servertest.Start(t)
	url := proxy(t, server, func(r *http.Request) bool { return lost.Add(1) <= 5 })
	lock, err := connect(t, url).Acquire(background, "k", Options{TTL: time.Minute, Wait: 30 * time.Second})
	if err != nil || lock.Check(background) != nil {
		t.Error(err)
	}
}

func TestARenewalThatFailsIsRepeatedWithAWarning(t *testing.T) {
	var lost atomic.Int64
	server := servertest.Start(t)
	url := proxy(t, server, func(r *http.Request) bool { return r.URL.Path == "/v1/renew" && lost.Add(1) <= 2 })
	warnings := make(chan string, 10)
	lock := mustAcquire(t, connect(t, url, WithWarning(func(text string) { warnings <- text })), "k", Options{TTL: 3 * time.Second})
	for i := 0; i < 2; i++ {
		if text := <-warnings; !strings.Contains(text, "lock 'k' was not renewed, trying again") {
			t.Errorf("the warning is %q", text)
		}
	}
	servertest.Until(t, "the third renewal", func() bool { return lost.Load() >= 3 })
	if err := lock.Check(background); err != nil {
		t.Error(err)
	}
}

func TestCloseStopsTheRenewals(t *testing.T) {
	var warnings atomic.Int64
	client := connect(t, servertest.Start(t), WithWarning(func(string) { warnings.Add(1) }))
	lock := mustAcquire(t, client, "k", Options{TTL: 1500 * time.Millisecond})
	client.Close()
	servertest.Until(t, "the end of the lease", func() bool { return lock.Err() != nil })
	if !errors.Is(lock.Err(), ErrLost) || warnings.Load() != 0 {
		t.Errorf("%v, %d warnings", lock.Err(), warnings.Load())
	}
}

func TestEventsEndWithClose(t *testing.T) {
	client := connect(t, servertest.Start(t))
	events, err := client.Events(background, EventsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lock := mustAcquire(t, client, "k", Options{})
	if event := <-events.C; event.Type != "lock.acquired" || event.LockID != lock.ID() || event.Timestamp.IsZero() {
		t.Errorf("the event is %+v", event)
	}
	events.Close()
	for range events.C { // closed soon
	}
	if !errors.Is(events.Err(), context.Canceled) {
		t.Errorf("the stream ended with %v", events.Err())
	}
}

func TestTimesOfAFreeze(t *testing.T) {
	client := connect(t, servertest.Start(t))
	until := time.Now().Add(time.Hour).In(time.FixedZone("somewhere", 7200))
	freeze, err := client.Freeze(background, FreezeOptions{Pattern: "a-*", Reason: "test", Until: until})
	if err != nil {
		t.Fatal(err)
	}
	if off := freeze.Until.Sub(until); off > time.Second || off < -time.Second || !freeze.From.IsZero() || !freeze.InForce {
		t.Errorf("%+v", freeze)
	}
}

func TestRunReleasesWithTheOutcome(t *testing.T) {
	client, bad := connect(t, servertest.Start(t)), errors.New("bad")
	run := func(f func(ctx context.Context) error) (outcome string, err error) {
		err = mustAcquire(t, client, "k", Options{TTL: time.Minute}).Run(background, f)
		info, _ := client.Status(background, "k")
		return info.Outcome, err
	}
	if outcome, err := run(func(context.Context) error { return nil }); outcome != "completed" || err != nil {
		t.Error(outcome, err)
	}
	if outcome, err := run(func(context.Context) error { return bad }); outcome != "failed" || err != bad {
		t.Error(outcome, err)
	}
	if outcome, err := run(func(ctx context.Context) error {
		if _, err := client.Force(background, "k", ForceOptions{Reason: "test"}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}); outcome != "forced" || !errors.Is(err, ErrLost) {
		t.Error(outcome, err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = run(func(context.Context) error { panic("bad") })
	}()
	if info, _ := client.Status(background, "k"); info.Outcome != "failed" {
		t.Errorf("after a panic the outcome is %s", info.Outcome)
	}
}

func TestConnectSaysWhatWouldBeRight(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		urls    string
		options []Option
		says    string
	}{
		{"", nil, "write http://HOST:PORT"},
		{"localhost:7420", nil, "'localhost:7420' is not the URL of a server"},
		{"unix:socket", nil, "unix:/PATH"},
		{"http://a,ftp://b", nil, "'ftp://b'"},
		{"http://me:secret@a", nil, "WithToken"},
		{"http://a", []Option{WithTokenFile(empty)}, empty},
		{"http://a", []Option{WithTokenFile("/no/such/file")}, "/no/such/file"},
		{"http://a", []Option{WithCAFile(empty)}, "PEM"},
	} {
		_, err := Connect(bad.urls, bad.options...)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), bad.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Connect(%q): %v", bad.urls, err)
		}
	}
}

func TestKindsOfAnswers(t *testing.T) {
	for _, answer := range []struct {
		status int
		code   string
		isRead bool
		kind   error
	}{
		{409, "lock_held", false, ErrHeld},
		{409, "superseded", false, ErrHeld},
		{409, "lease_lost", false, ErrLost},
		{401, "unauthorized", false, ErrNotPermitted},
		{403, "", false, ErrNotPermitted},
		{404, "not_found", true, ErrNotFound},
		{404, "no_such_route", false, ErrInvalid},
		{400, "invalid", false, ErrInvalid},
		{503, "busy", false, ErrUnavailable},
		{503, "bad_config", false, ErrInvalid},
		{502, "", false, ErrUnknown},
		{504, "unknown_outcome", false, ErrUnknown},
		{504, "", true, ErrUnavailable},
	} {
		if kind := kindOf(answer.status, answer.code, answer.isRead); kind != answer.kind {
			t.Errorf("%d %s: %v, expected %v", answer.status, answer.code, kind, answer.kind)
		}
	}
}

func TestTheFirstExampleOfTheReadmeRuns(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(text), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	const placeholder, place = "http://127.0.0.1:7420", "/path/to/belay/clients/go"
	if !strings.Contains(code, placeholder) {
		t.Fatal("the example names no server")
	}
	dir, here := t.TempDir(), must(os.Getwd())
	code = strings.Replace(code, placeholder, servertest.Start(t), 1)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "    go ") {
			continue
		}
		ran++
		command := exec.Command("sh", "-c", strings.Replace(line, place, here, 1))
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		if strings.Contains(line, "go run") && !strings.HasPrefix(string(out), "holding deploy-api-prod with token ") {
			t.Errorf("%s printed %q", line, out)
		}
	}
	if ran != 3 {
		t.Errorf("the README has %d commands to run the example, expected 3", ran)
	}
}

func must(text string, err error) string {
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return text
}

func TestAnAnswerThatNoServerGivesIsUnknown(t *testing.T) {
	var text atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(text.Load().(string)))
	}))
	t.Cleanup(server.Close)
	for _, answer := range []string{"{}", "[]", "<html>", "null", `{"locks":[]}`, `{"locks":[null]}`, `{"locks":5}`} {
		text.Store(answer)
		_, err := connect(t, server.URL).Acquire(background, "k", Options{LockID: "mine"})
		var e *Error
		if !errors.Is(err, ErrUnknown) || !errors.As(err, &e) || e.LockID != "mine" {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestAServerThatAnswersButCannotIsWaitedFor(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"key":"k","lock_id":"mine","token":1,"ttl_ms":60000,"valid_for_ms":50000}`))
	}))
	t.Cleanup(server.Close)
	mustAcquire(t, connect(t, server.URL), "k", Options{LockID: "mine", Wait: time.Minute})
}
