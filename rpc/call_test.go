package rpc

import (
	"context"
	"testing"
	"testing/synctest"
)

func newCall() *call { return &call{values: context.WithValue(context.Background(), connKey{}, 1)} }

func TestACallIsAContext(t *testing.T) {
	for why, want := range map[cause]error{
		causeCancel: context.Canceled, causeGone: context.Canceled, causeServed: context.Canceled,
		causeDeadline: context.DeadlineExceeded,
	} {
		for _, asked := range []bool{true, false} {
			c := newCall()
			if asked {
				select {
				case <-c.Done():
					t.Error("done before its end")
				default:
				}
			}
			if c.Err() != nil {
				t.Errorf("before its end: %v", c.Err())
			}
			c.cancelFor(why)
			c.cancelFor(causeServed) // the first cause counts
			<-c.Done()
			if c.Err() != want || c.cause() != why {
				t.Errorf("cause %d: %v, want %v", why, c.Err(), want)
			}
			if c.Value(connKey{}) != 1 {
				t.Error("the values are lost")
			}
		}
	}
}

func TestACallEndsItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCall()
		child, cancel := context.WithCancel(c)
		grandchild, cancel2 := context.WithTimeout(child, 1<<40)
		defer cancel2()
		left, leave := context.WithCancel(c)
		leave() // before the call ends
		if n := len(c.mu.after); n != 1 {
			t.Errorf("%d children are known, want 1", n)
		}
		ran := make(chan struct{}, 2)
		context.AfterFunc(c, func() { ran <- struct{}{} })
		stop := context.AfterFunc(c, func() { t.Error("a function that was stopped runs") })
		if !stop() || stop() {
			t.Error("stop must work once")
		}
		c.cancelFor(causeDeadline)
		<-child.Done()
		<-grandchild.Done()
		<-ran
		if child.Err() != context.DeadlineExceeded || left.Err() != context.Canceled {
			t.Errorf("child %v, the one that left %v", child.Err(), left.Err())
		}
		context.AfterFunc(c, func() { ran <- struct{}{} }) // afterwards: at once
		<-ran
		cancel()
		late, cancel3 := context.WithCancel(c)
		defer cancel3()
		if late.Err() == nil {
			t.Error("a child of a call that has ended lives")
		}
	})
}
