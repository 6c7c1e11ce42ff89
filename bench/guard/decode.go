//go:build linux && amd64

package guard

import (
	"fmt"
	"reflect"
	"runtime"
)

// kind is what is counted of an instruction beside its being one.
type kind uint8

const (
	plain kind = iota
	locked
	systemCall
	clock
)

func (c *Counts) add(k kind) {
	c.Instructions++
	switch k {
	case locked:
		c.Locked++
	case systemCall:
		c.SystemCalls++
	case clock:
		c.Clocks++
	}
}

// kindOf looks at the bytes of an instruction (Intel's manual, volume 2): the LOCK
// prefix, XCHG with memory, which locks without it, and SYSCALL. begins names the
// function whose first instruction it is, "" for none: the clock is read in the
// kernel's own page, on another stack.
func kindOf(text []byte, begins string) kind {
	if begins == "time.now" || begins == "runtime.nanotime1" {
		return clock
	}
	isLocked := false
	for len(text) > 3 && (text[0] == 0xf0 || text[0] == 0x66 || text[0] == 0xf2 || text[0] == 0xf3 || text[0] == 0x2e || text[0] == 0x3e ||
		text[0] == 0x64 || text[0] == 0x65 || text[0]&0xf0 == 0x40) {
		isLocked = isLocked || text[0] == 0xf0
		text = text[1:]
	}
	switch {
	case isLocked:
		return locked
	case (text[0] == 0x86 || text[0] == 0x87) && text[1]>>6 != 3:
		return locked
	case text[0] == 0x0f && text[1] == 0x05:
		return systemCall
	}
	return plain
}

// functionAt returns the function that begins at an address of this program, which
// is the child's as well.
func functionAt(at uint64) string {
	if f := runtime.FuncForPC(uintptr(at)); f != nil && uint64(f.Entry()) == at {
		return f.Name()
	}
	return ""
}

// entry is the address of a function's first instruction.
func entry(f func()) (uint64, error) {
	at := reflect.ValueOf(f).Pointer()
	if at == 0 {
		return 0, fmt.Errorf("guard: the function has no address")
	}
	return uint64(at), nil
}
