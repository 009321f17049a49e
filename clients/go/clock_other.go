//go:build !linux

package belay

import (
	"sync"
	"time"
)

var clock = struct {
	sync.Mutex
	started time.Time
	ahead   time.Duration
}{started: time.Now()}

// now reads a clock that runs on during suspend, in which Go's monotonic clock stops on some systems: the monotonic
// clock plus the most that the wall clock was ever ahead of it. A wall clock that is set can only end a lease early.
func now() time.Duration {
	clock.Lock()
	defer clock.Unlock()
	monotonic := time.Since(clock.started)
	if ahead := time.Now().Round(0).Sub(clock.started.Round(0)) - monotonic; ahead > clock.ahead {
		clock.ahead = ahead
	}
	return monotonic + clock.ahead
}
