// The examples, run as programs against a real server: what the documents promise.
package examples

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay.example/belay"
	"belay.example/belay/internal/servertest"
)

var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "belay-examples-")
	if err != nil {
		panic(err)
	}
	programs = dir
	build := exec.Command("go", "build", "-o", dir, "./...")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// program is a running example.
type program struct {
	*exec.Cmd
	out bytes.Buffer
}

func start(t *testing.T, url, name string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(filepath.Join(programs, name), args...)}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.Env = append(os.Environ(), "BELAY_URL="+url)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// end returns the exit status and the output.
func (p *program) end(t *testing.T) (int, string) {
	t.Helper()
	var failed *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode(), p.out.String()
}

func (p *program) mustEnd(t *testing.T, status int, text string) {
	t.Helper()
	if got, out := p.end(t); got != status || !strings.Contains(out, text) {
		t.Fatalf("exit status %d, expected %d; output, expected to contain %q:\n%s", got, status, text, out)
	}
}

func connect(t *testing.T, url string) *belay.Client {
	t.Helper()
	client, err := belay.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func status(t *testing.T, client *belay.Client, key string) belay.Info {
	t.Helper()
	info, err := client.Status(context.Background(), key)
	if err != nil && !errors.Is(err, belay.ErrNotFound) {
		t.Fatal(err)
	}
	return info
}

func awaitHolder(t *testing.T, client *belay.Client, key string) {
	t.Helper()
	servertest.Until(t, "the lock on "+key, func() bool { return status(t, client, key).Status == "active" })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestSagaCreatesTheGraphOnceHoweverManyWorkersTry(t *testing.T) {
	url, dir := servertest.Start(t), t.TempDir()
	var created, ran int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := 0; i < 5; i++ {
		p := start(t, url, "saga", "-url", url, "-dir", dir, "-pause", "50ms")
		all.Add(1)
		go func() {
			defer all.Done()
			code, out := p.end(t)
			mu.Lock()
			defer mu.Unlock()
			if code == 0 {
				ran++
			}
			created += strings.Count(out, "created")
		}()
	}
	all.Wait()
	if ran != 5 || created != 1 {
		t.Fatalf("%d of 5 workers ended well, and the graph was created %d times", ran, created)
	}
}

func TestSagaThatFailsUndoesItsStepsAndReleasesTheLockAsFailed(t *testing.T) {
	url, dir := servertest.Start(t), t.TempDir()
	client := connect(t, url)
	start(t, url, "saga", "-url", url, "-dir", dir, "-fail").mustEnd(t, 1, "graph: out of space")
	if exists(filepath.Join(dir, "node-alice")) {
		t.Error("the first step was not undone")
	}
	if info := status(t, client, "default_graph_creation_alice"); info.Status != "released" || info.Outcome != "failed" {
		t.Errorf("the lock is %s, %s", info.Status, info.Outcome)
	}
	start(t, url, "saga", "-url", url, "-dir", dir).mustEnd(t, 0, "created")
	if info := status(t, client, "default_graph_creation_alice"); info.Outcome != "completed" {
		t.Errorf("the outcome is %s", info.Outcome)
	}
}

func TestSagaOfAWorkerThatCrashedIsTakenOver(t *testing.T) {
	url, dir := servertest.Start(t), t.TempDir()
	client := connect(t, url)
	crashed := start(t, url, "saga", "-url", url, "-dir", dir, "-pause", "1h")
	awaitHolder(t, client, "default_graph_creation_alice")
	_ = crashed.Process.Kill()
	start(t, url, "saga", "-url", url, "-dir", dir).mustEnd(t, 0, "created")
}

func TestExecutionIsRefusedWhileAnotherRuns(t *testing.T) {
	url, dir := servertest.Start(t), t.TempDir()
	client := connect(t, url)
	gate := filepath.Join(dir, "go")
	first := start(t, url, "execution", "run", "terraform-prod", "execution-1", "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.02; done")
	awaitHolder(t, client, "terraform-prod")
	start(t, url, "execution", "run", "terraform-prod", "execution-2", "true").mustEnd(t, 1,
		"Execution blocked: lock 'terraform-prod' held by execution-1 until 20")
	start(t, url, "execution", "list").mustEnd(t, 0, "terraform-prod\tactive\texecution-1\t20")
	start(t, url, "execution", "run", "terraform-dev", "execution-2", "true").mustEnd(t, 0, "")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.mustEnd(t, 0, "")
	start(t, url, "execution", "status", "terraform-prod").mustEnd(t, 0, "released")
	start(t, url, "execution", "run", "terraform-prod", "execution-2", "false").mustEnd(t, 1, "exit status 1")
	if info := status(t, client, "terraform-prod"); info.Status != "released" || info.Outcome != "failed" {
		t.Errorf("after a command that failed the lock is %s, %s", info.Status, info.Outcome)
	}
}

func TestExecutionMayAcquireItsLockAgain(t *testing.T) {
	url := servertest.Start(t)
	lock, err := connect(t, url).Acquire(context.Background(), "terraform-prod", belay.Options{Owner: "execution-1", Profile: "execution"})
	if err != nil {
		t.Fatal(err)
	}
	start(t, url, "execution", "run", "terraform-prod", "execution-1", "true").mustEnd(t, 0, "")
	servertest.Until(t, "that the shared lock is over", func() bool { return lock.Err() != nil })
}

func TestExecutionThatIsReleasedByForceIsKilled(t *testing.T) {
	url := servertest.Start(t)
	client := connect(t, url)
	first := start(t, url, "execution", "run", "terraform-prod", "execution-1", "sleep", "3600")
	awaitHolder(t, client, "terraform-prod")
	start(t, url, "execution", "release", "terraform-prod").mustEnd(t, 0, "")
	first.mustEnd(t, 1, "")
}

func TestDeployerSavesTheState(t *testing.T) {
	url := servertest.Start(t)
	target := filepath.Join(t.TempDir(), "target")
	for _, version := range []string{"v1", "v2"} {
		start(t, url, "deployer", "-url", url, "-target", target, "-version", version).mustEnd(t, 0, "")
		if text, err := os.ReadFile(target); err != nil || string(text) != version {
			t.Fatalf("deployed is %q, expected %s", text, version)
		}
	}
	first := start(t, url, "deployer", "-url", url, "-target", target, "-version", "v3", "-pause", "1h")
	awaitHolder(t, connect(t, url), "stack:shop:env:prod")
	start(t, url, "deployer", "-url", url, "-target", target, "-version", "v4").mustEnd(t, 1, "held by")
	_ = first.Process.Kill()
}

func TestDeployerWhoseLockWasForcedDoesNotDeploy(t *testing.T) {
	url := servertest.Start(t)
	client, target := connect(t, url), filepath.Join(t.TempDir(), "target")
	late := start(t, url, "deployer", "-url", url, "-target", target, "-version", "late", "-pause", "1s")
	awaitHolder(t, client, "stack:shop:env:prod")
	if _, err := client.Force(context.Background(), "stack:shop:env:prod", belay.ForceOptions{Reason: "stuck"}); err != nil {
		t.Fatal(err)
	}
	late.mustEnd(t, 1, "belay:")
	if exists(target) {
		t.Fatal("it has deployed")
	}
}

func TestDeployerThatWasStoppedPastItsLeaseDoesNotDeploy(t *testing.T) {
	url := servertest.Start(t)
	client, target := connect(t, url), filepath.Join(t.TempDir(), "target")
	late := start(t, url, "deployer", "-url", url, "-target", target, "-version", "late", "-ttl", "2s", "-pause", "500ms")
	awaitHolder(t, client, "stack:shop:env:prod")
	if err := late.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "the end of the lease", func() bool { return status(t, client, "stack:shop:env:prod").Status == "expired" })
	start(t, url, "deployer", "-url", url, "-target", target, "-version", "v2").mustEnd(t, 0, "")
	began := time.Now()
	if err := late.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	late.mustEnd(t, 1, "could not be renewed in time")
	if text, _ := os.ReadFile(target); string(text) != "v2" {
		t.Fatalf("after %s, deployed is %q", time.Since(began), text)
	}
}
