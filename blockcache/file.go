package blockcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// file is what a volume asks of the disk: the narrow place where tests put
// faults.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
	// Reserve makes the disk blocks of a range exist, without changing bytes.
	Reserve(off, n int64) error
	// Punch gives the disk blocks of a range back; it reads as zeros then.
	Punch(off, n int64) error
	// Map maps the first n bytes of the file for reading.
	Map(n int64) ([]byte, error)
	// Resident tells which pages from first to last of the mapping could be read
	// without waiting for the disk. The first bit is of the first page's region.
	Resident(mapped []byte, first, last uint64) pageSet
}

// opener opens a file of a volume, creating it when it is not there.
type opener func(dir *os.Root, name string) (file, error)

// diskFile is a file on a real disk.
type diskFile struct {
	*os.File
	// fd is the file's descriptor, valid until Close: readers ask for the size
	// after each copy, and (*os.File).Stat allocates.
	fd int
}

func openDiskFile(dir *os.Root, name string) (file, error) {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return diskFile{f, int(f.Fd())}, nil
}

func (f diskFile) Size() (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(f.fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Size, nil
}

// The modes of fallocate(2).
const (
	keepSize  = 1
	punchHole = 2
)

func (f diskFile) fallocate(mode uint32, off, n int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), mode, off, n)
		if err != syscall.EINTR {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

func (f diskFile) Reserve(off, n int64) error {
	err := f.fallocate(keepSize, off, n)
	if errors.Is(err, errors.ErrUnsupported) {
		// A file system without it: the write itself finds the space or fails.
		return nil
	}
	return err
}

func (f diskFile) Punch(off, n int64) error { return f.fallocate(keepSize|punchHole, off, n) }

func (f diskFile) Map(n int64) ([]byte, error) {
	b, err := syscall.Mmap(int(f.Fd()), 0, int(n), syscall.PROT_READ, syscall.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}

// Resident asks the kernel: 0.6 us for a page, 1.5 us for 32 of them. One with
// larger pages is not asked: its answer would be put down to the wrong bytes.
func (f diskFile) Resident(mapped []byte, first, last uint64) (in pageSet) {
	if os.Getpagesize() != pageSize {
		return in
	}
	var said [askRegions * regionPages]byte
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[first*pageSize])),
		uintptr(last-first+1)*pageSize, uintptr(unsafe.Pointer(&said[first%regionPages])))
	if errno != 0 {
		return in
	}
	for i := range last/regionPages - first/regionPages + 1 {
		for j := range regionPages / 8 {
			// The lowest bits of eight bytes, side by side: each is moved by 7 bits more
			// than the next one.
			eight := binary.LittleEndian.Uint64(said[i*regionPages+uint64(j)*8:]) & 0x0101010101010101
			in[i] |= uint32(eight*0x0102040810204080>>56) << (8 * j)
		}
	}
	return in
}

// diskUse is how full the file system of a directory is.
type diskUse struct {
	total, left        int64 // bytes
	inodes, inodesLeft int64
}

// percent is the use of space or inodes, whichever is more.
func (d diskUse) percent() int64 {
	use := int64(0)
	if d.total > 0 {
		use = 100 - d.left*100/d.total
	}
	if d.inodes > 0 {
		use = max(use, 100-d.inodesLeft*100/d.inodes)
	}
	return use
}

// statDisk asks the kernel; a file system that can't be asked is an empty one.
func statDisk(dir string) diskUse {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return diskUse{}
	}
	free := int64(st.Blocks-st.Bfree) + int64(st.Bavail) // what root alone may use is not there
	return diskUse{
		total: free * st.Bsize, left: int64(st.Bavail) * st.Bsize,
		inodes: int64(st.Files), inodesLeft: int64(st.Ffree),
	}
}

// errLocked: another process uses the directory.
var errLocked = errors.New("another process has this cache directory open")

// lockDir takes the directory for this process, until the file is closed. ours
// is the data file that this process had there before, if any.
func lockDir(dir *os.Root, ours os.FileInfo) (*os.File, error) {
	f, err := dir.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if err == syscall.EWOULDBLOCK {
			err = errLocked
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := claimDir(dir, f, ours); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// claimDir marks the directory as ours. One without the mark that has a file
// by one of our names belongs to somebody else, unless the file begins as ours
// do or is the one we know.
func claimDir(dir *os.Root, lock *os.File, ours os.FileInfo) error {
	mark := make([]byte, len(dirMark))
	if n, _ := lock.ReadAt(mark, 0); string(mark[:n]) == dirMark {
		return nil
	}
	st, err := dir.Stat(dataName)
	if err == nil && st.Mode().IsRegular() && st.Size() > 0 && !(ours != nil && os.SameFile(st, ours)) {
		_, err = dir.Stat(blocksName)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s is not ours", ErrFormat, dataName)
		}
	}
	// On disk before there is anything else to tell whose the directory is.
	if _, err := lock.WriteAt([]byte(dirMark), 0); err != nil {
		return err
	}
	return lock.Sync()
}

// dirMark is what the lock file of a cache directory holds.
const dirMark = "headstart cache directory\n"

// openRoot opens the directory, creating it when only it is missing.
func openRoot(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
		root, err = os.OpenRoot(path)
	}
	return root, err
}
