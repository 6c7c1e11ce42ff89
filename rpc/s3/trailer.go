package s3

import (
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// passedChunk is the size of the chunks in which a body goes on. All but the last
// one have it, so that the length of all is known before.
const passedChunk = 64 << 10

// trailed writes a body anew in unsigned chunks with the client's checksums behind
// them: the client has sent them behind the body, where they can't be waited for,
// and object storage keeps them with the object, or misses them when the parts of
// an upload are put together. They have been checked when they leave.
type trailed struct {
	src *chunked
	// out is what is left of buf.
	out, buf []byte
	ended    bool
}

// newTrailed passes src on, which is size bytes long. It returns how many bytes
// come out, and sets what the header says of them.
func newTrailed(src *chunked, size int64, header http.Header) (*trailed, int64) {
	encoding := "aws-chunked"
	if rest := header.Get("Content-Encoding"); rest != "" {
		encoding += "," + rest
	}
	header.Set("Content-Encoding", encoding)
	header.Set("X-Amz-Decoded-Content-Length", strconv.FormatInt(size, 10))
	header.Set("X-Amz-Trailer", strings.Join(slices.Sorted(maps.Keys(src.sums)), ","))
	t := &trailed{src: src, buf: make([]byte, 0, passedChunk+32)}
	line := func(n int64) int64 { return int64(len(strconv.FormatInt(n, 16)) + len("\r\n")) }
	length := size / passedChunk * (line(passedChunk) + passedChunk + 2)
	if rest := size % passedChunk; rest > 0 {
		length += line(rest) + rest + 2
	}
	return t, length + int64(len(t.appendEnd(nil)))
}

// appendEnd appends the last chunk and the trailer.
func (t *trailed) appendEnd(b []byte) []byte {
	b = append(b, "0\r\n"...)
	for _, name := range slices.Sorted(maps.Keys(t.src.sums)) {
		b = append(append(b, name...), ':')
		b = base64.StdEncoding.AppendEncode(b, t.src.sums[name].Sum(nil))
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// Read implements io.Reader.
func (t *trailed) Read(p []byte) (int, error) {
	for len(t.out) == 0 {
		if t.ended {
			return 0, io.EOF
		}
		if err := t.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.out)
	t.out = t.out[n:]
	return n, nil
}

// fill makes the next chunk.
func (t *trailed) fill() error {
	const room = 8 // for the longest line before a chunk
	n, err := io.ReadFull(t.src, t.buf[room:room+passedChunk])
	t.ended = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !t.ended {
		return err
	}
	t.out = t.buf[room:room]
	if n > 0 {
		line := strconv.AppendInt(t.buf[:0], int64(n), 16)
		line = append(line, "\r\n"...)
		from := room - len(line)
		copy(t.buf[from:room], line)
		t.out = append(t.buf[from:room+n], "\r\n"...)
	}
	if t.ended {
		t.out = t.appendEnd(t.out)
	}
	return nil
}
