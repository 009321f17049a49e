// Package servertest starts a real `belay serve` for tests.
package servertest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Program returns the path of belay: $BELAY_BIN, or what `make` builds.
func Program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("BELAY_BIN"); path != "" {
		return path
	}
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "../../../../build/belay")
	if _, err := os.Stat(path); err != nil {
		t.Skip("there is no belay to test with: run make, or set BELAY_BIN")
	}
	return path
}

// Start starts a server on a new store, with more environment variables, and returns its URL. The test ends it.
func Start(t testing.TB, environment ...string) string {
	t.Helper()
	dir := t.TempDir()
	command := exec.Command(Program(t), "serve", "--json", "--log", "json", "--listen", "127.0.0.1:0",
		"--store", "sqlite:"+filepath.Join(dir, "locks.db"))
	command.Dir = dir
	command.Env = append(append(os.Environ(), "HOME="+dir, "BELAY_AUTH_TOKEN=", "BELAY_AUTH_FILE="), environment...)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	var hello struct{ Listening []string }
	line, _ := bufio.NewReader(out).ReadBytes('\n')
	if err := json.Unmarshal(line, &hello); err != nil || len(hello.Listening) == 0 {
		t.Fatalf("the server did not start: %q", line)
	}
	return hello.Listening[0]
}

// Until waits until a condition is true.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come true", what)
		}
	}
}
