package block

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBufIsFreedByItsLastHolder(t *testing.T) {
	freed := 0
	b := NewBuf([]byte("block"), func(*Buf) { freed++ })
	b.Seal()
	lease := b.Retain().Lease()
	b.Release()
	if freed != 0 || lease.Len() != 5 || lease.CRC() != Checksum([]byte("block")) || !lease.Valid() {
		t.Fatalf("freed %d times while a lease is held", freed)
	}
	lease.Release()
	lease.Release() // an empty lease
	if freed != 1 || lease.Valid() || lease.Len() != 0 {
		t.Errorf("freed %d times, lease %+v", freed, lease)
	}
	NewBuf(nil, nil).Release() // memory that is the collector's
}

func TestBufMisuseIsNotSilent(t *testing.T) {
	for name, misuse := range map[string]func(*Buf){
		"release": func(b *Buf) { b.Release() },
		"retain":  func(b *Buf) { b.Retain() },
	} {
		b := NewBuf(make([]byte, 1), nil)
		b.Release()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of a buffer that nobody holds went unseen", name)
				}
			}()
			misuse(b)
		}()
	}
}

func TestBufComesBackFromItsPool(t *testing.T) {
	b := NewBuf(make([]byte, 8), nil)
	b.Truncate(3)
	b.Seal()
	b.Release()
	if len(b.Bytes()) != 3 || b.Cap() != 8 {
		t.Fatalf("%d of %d bytes", len(b.Bytes()), b.Cap())
	}
	b.Reset(8)
	if len(b.Bytes()) != 8 || b.CRC() != 0 {
		t.Errorf("%d bytes, checksum %x after Reset", len(b.Bytes()), b.CRC())
	}
	b.Release()
}

func TestS13_VerifyTellsAWrongByte(t *testing.T) {
	good := bytes.Repeat([]byte("headstart"), 100)
	crc := Checksum(good)
	for _, at := range []int{-1, 0, 450, len(good) - 1} {
		data := bytes.Clone(good)
		if at >= 0 {
			data[at] ^= 1
		}
		b := NewBuf(data, nil)
		if b.Verify(crc) != (at < 0) || b.CRC() != crc {
			t.Errorf("byte %d flipped: wrong verdict, or the checksum was made anew", at)
		}
	}
}

func TestLeaseCopyAt(t *testing.T) {
	for _, c := range []struct {
		off, n int
		want   string
	}{
		{0, 5, "block"}, {0, 9, "block"}, {2, 2, "oc"}, {4, 9, "k"}, {5, 1, ""}, {99, 1, ""}, {0, 0, ""},
	} {
		lease := NewBuf([]byte("block"), nil).Lease()
		dst := make([]byte, c.n)
		n, err := lease.CopyAt(dst, c.off)
		if err != nil || string(dst[:n]) != c.want {
			t.Errorf("CopyAt(%d bytes, %d) = %q, %v; want %q", c.n, c.off, dst[:n], err, c.want)
		}
		if string(lease.Raw()) != "block" {
			t.Errorf("Raw is %q", lease.Raw())
		}
		lease.Release()
		if n, err := lease.CopyAt(dst, 0); n != 0 || err != nil {
			t.Errorf("an empty lease gave %d bytes, %v", n, err)
		}
	}
}

func TestLeasesAllocateNothing(t *testing.T) {
	b := NewBuf(make([]byte, 4096), nil)
	dst := make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() {
		lease := b.Retain().Lease()
		if n, err := lease.CopyAt(dst, 0); n != len(dst) || err != nil {
			t.Fatal("short copy")
		}
		lease.Release()
	}); n != 0 {
		t.Errorf("lending a buffer allocates %v times", n)
	}
}

func TestBufHeldByMany(t *testing.T) {
	var freed atomic.Int32
	b := NewBuf([]byte("block"), func(*Buf) { freed.Add(1) })
	var done sync.WaitGroup
	for range 16 {
		b.Retain()
		done.Go(func() {
			for range 1000 {
				lease := b.Retain().Lease()
				lease.Release()
			}
			b.Release()
		})
	}
	b.Release()
	done.Wait()
	if freed.Load() != 1 {
		t.Errorf("freed %d times", freed.Load())
	}
}

func TestReplyReleasesItsLeases(t *testing.T) {
	freed := 0
	reply := Reply{Meta: Meta{Size: 1}}
	for i := range uint64(3) {
		a := Answer{Index: i, Status: StatusNotFound}
		if i != 1 {
			a.Status, a.Lease = StatusData, NewBuf(make([]byte, 1), func(*Buf) { freed++ }).Lease()
		}
		reply.Answers = append(reply.Answers, a)
	}
	reply.Release()
	reply.Release()
	if freed != 2 || len(reply.Answers) != 0 || cap(reply.Answers) < 3 || reply.Meta.Size != 0 {
		t.Errorf("%d leases given back, %+v is left", freed, reply)
	}
}
