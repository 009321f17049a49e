package belay

import (
	"syscall"
	"time"
	"unsafe"
)

// now reads CLOCK_BOOTTIME. Go's own monotonic clock stops while the machine is suspended, and a lease does not.
func now() time.Duration {
	const clockBoottime = 7
	var t syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		panic("belay: CLOCK_BOOTTIME cannot be read: " + e.Error())
	}
	return time.Duration(t.Nano())
}
