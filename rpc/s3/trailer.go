package s3

import (
	"bytes"
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

// passSums decides how the checksums go on that a client sends behind a body: they
// are checked whatever becomes of them, object storage keeps them with the object,
// and asks for them when an upload was begun with a checksum algorithm. A store that
// does not know of chunks with a trailer may take them for the object's bytes, and
// say nothing. So they go before the body where there is room to wait for all of it,
// behind it to a store that has shown that it understands, and nowhere else. It
// returns how long the body is.
func (f *Front) passSums(u *upstream, r *request, size int64, header http.Header) (int64, *Error) {
	if leave, ok := f.spool.enter(size); ok {
		u.stop = append(u.stop, leave)
		data := make([]byte, size)
		n, err := io.ReadFull(u.body, data)
		if err == nil { // the checksums are checked behind the last byte
			_, err = io.ReadFull(u.body, make([]byte, 1))
		}
		if err != io.EOF {
			return 0, unread(err)
		}
		u.body.whole = bytes.NewReader(data[:n])
		return size, nil
	}
	if !f.trailers.taken(f, r) {
		return size, nil
	}
	t, length := newTrailed(u.body.chunked, size, header)
	u.body.held = newHeld(t)
	header.Set("X-Amz-Content-Sha256", streamingUnsigned)
	return length, nil
}

// trailed writes a body anew in unsigned chunks with the client's checksums, which
// have been checked when they leave, behind them.
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
