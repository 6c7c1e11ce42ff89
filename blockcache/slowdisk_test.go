package blockcache

import (
	"os"
	"time"
)

// SlowWrites makes each write to the cache's files take that long, for the tests
// of those who use a cache.
func SlowWrites(o Options, each time.Duration) Options {
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return slowFile{f, each}, err
	}
	return o
}

type slowFile struct {
	file
	each time.Duration
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(f.each)
	return f.file.WriteAt(p, off)
}
