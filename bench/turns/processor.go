package turns

import (
	"syscall"
	"time"
)

// ProcessorTime is what this process has used so far: what other programs take of
// the machine does not count.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for the process itself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
