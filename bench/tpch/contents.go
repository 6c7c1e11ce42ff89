package tpch

import (
	"bytes"
	"encoding/binary"
)

// Contents are the bytes of all objects. They stay in memory once and are
// shared: the S3 server serves them, a replay compares with them.
type Contents struct {
	objects [][]byte
}

// Generate makes contents of the objects' sizes from a seed. No aligned word of
// an object comes up twice in it, nor, but for an unlikely chance, in another
// one: bytes of another object or another offset are found out.
func Generate(objects []Object, seed uint64) *Contents {
	c := &Contents{objects: make([][]byte, len(objects))}
	for i, o := range objects {
		data := make([]byte, (o.Size+7)&^7)
		// A counter through a mixer: word k does not depend on word k-1, which
		// is what makes this run at the speed of memory.
		state := mix(seed ^ mix(uint64(i)+1))
		for off := 0; off < len(data); off += 8 {
			state += 0x9e3779b97f4a7c15
			binary.LittleEndian.PutUint64(data[off:], mix(state))
		}
		c.objects[i] = data[:o.Size]
	}
	return c
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Object returns the bytes of object i; nobody may change them.
func (c *Contents) Object(i int) []byte { return c.objects[i] }

// Wrong returns how many bytes of got are not those that r asks for. Missing
// bytes and those past the end of the read are wrong.
func (c *Contents) Wrong(r Read, got []byte) int64 {
	want := c.objects[r.Object][r.Offset : r.Offset+r.Length]
	if bytes.Equal(want, got) {
		return 0
	}
	both := min(len(want), len(got))
	wrong := len(want) + len(got) - 2*both
	for i := range both {
		if want[i] != got[i] {
			wrong++
		}
	}
	return int64(wrong)
}
