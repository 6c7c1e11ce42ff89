package s3

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"strconv"
	"strings"
)

const (
	streaming         = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamingTrailer  = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	streamingUnsigned = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	// maxChunkLine bounds the line before a chunk and each line of the trailer.
	maxChunkLine = 512
	// maxTrailers bounds the lines of a trailer.
	maxTrailers = 8
	// heldBytes is the buffer of a body on its way.
	heldBytes = 64 << 10
)

func incomplete(why string) *Error {
	return &Error{Code: codeIncompleteBody, Message: "The body is not what the request says it is: " + why + "."}
}

// chunked reads a body that was sent in chunks of S3's own, each with a signature
// or none, with checksums behind the last one. It is what the client wrote or an
// error, never io.EOF for a part of it.
type chunked struct {
	src *bufio.Reader
	// signing is set when chunks are signed; last is the signature before.
	signing *signingKey
	sign    *signature
	last    string
	// left is what the chunk still has, total what all are to have.
	left, total int64
	chunk       hash.Hash
	given       string
	trailer     bool
	// sums are the checksums that the trailer will be held against, by name.
	sums map[string]hash.Hash
	err  error
}

// newChunked reads src, of which size bytes come out.
func newChunked(src io.Reader, size int64, c *caller, trailers string) (*chunked, *Error) {
	d := &chunked{src: bufio.NewReaderSize(src, 4<<10), total: size, trailer: c.payload != streaming, sums: map[string]hash.Hash{}}
	if c.payload != streamingUnsigned {
		d.signing, d.sign, d.last, d.chunk = c.signing, c.sign, c.sign.given, sha256.New()
	}
	for name := range strings.SplitSeq(trailers, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		sum := newSum(name)
		if sum == nil || !d.trailer {
			return nil, &Error{Code: codeInvalidRequest, Message: "The trailer " + valid(name) + " is not supported."}
		}
		d.sums[name] = sum
	}
	return d, nil
}

// newSum returns the hash behind a header of S3's, nil when there is none.
func newSum(name string) hash.Hash {
	switch name {
	case "x-amz-checksum-crc32":
		return crc32.NewIEEE()
	case "x-amz-checksum-crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "x-amz-checksum-crc64nvme":
		const reversed = 0x9a6c9329ac4bc9b5
		return crc64.New(crc64.MakeTable(reversed))
	case "x-amz-checksum-sha1":
		return sha1.New()
	case "x-amz-checksum-sha256":
		return sha256.New()
	}
	return nil
}

// Read implements io.Reader.
func (d *chunked) Read(p []byte) (int, error) {
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	if d.left == 0 {
		if d.err = d.next(); d.err != nil {
			return 0, d.err
		}
	}
	n, err := d.src.Read(p[:min(int64(len(p)), d.left)])
	if err == nil || n > 0 {
		err = d.took(p[:n])
	} else {
		err = incomplete("a chunk ends early")
	}
	d.err = err
	return n, err
}

func (d *chunked) took(p []byte) error {
	d.left, d.total = d.left-int64(len(p)), d.total-int64(len(p))
	if d.chunk != nil {
		d.chunk.Write(p)
	}
	for _, sum := range d.sums {
		sum.Write(p)
	}
	if d.left > 0 {
		return nil
	}
	if line, err := d.line(); err != nil || len(line) > 0 {
		return incomplete("a chunk is longer than its size")
	}
	return d.verify()
}

// next reads the line before a chunk. Behind the last chunk it reads the trailer
// and returns io.EOF.
func (d *chunked) next() error {
	line, err := d.line()
	if err == errEnded {
		return incomplete("it ends before its last chunk")
	}
	if err != nil {
		return err
	}
	size, rest, _ := strings.Cut(string(line), ";")
	n, bad := strconv.ParseUint(size, 16, 62)
	if bad != nil || size == "" || size[0] == '+' {
		return incomplete("want the size of a chunk in hexadecimal digits")
	}
	if d.signing != nil {
		given, ok := strings.CutPrefix(rest, "chunk-signature=")
		if !ok {
			return incomplete("a chunk has no signature")
		}
		d.given = given
		d.chunk.Reset()
	} else if rest != "" {
		return incomplete("a chunk has a signature that nothing is known of")
	}
	if int64(n) > d.total {
		return incomplete("it is longer than x-amz-decoded-content-length")
	}
	if d.left = int64(n); n > 0 {
		return nil
	}
	if d.total > 0 {
		return incomplete("it is shorter than x-amz-decoded-content-length")
	}
	if err := d.verify(); err != nil {
		return err
	}
	return d.end()
}

// verify compares the signature of a chunk that has been read.
func (d *chunked) verify() error {
	if d.signing == nil {
		return nil
	}
	return d.compare("AWS4-HMAC-SHA256-PAYLOAD", emptyHash+"\n", d.chunk.Sum(nil), d.given)
}

func (d *chunked) compare(what, between string, hash []byte, given string) error {
	text := []byte(what + "\n" + d.sign.at.Format(timeFormat) + "\n")
	text = append(d.sign.appendScope(text), "\n"+d.last+"\n"+between+hex.EncodeToString(hash)...)
	want := hex.EncodeToString(d.signing.appendSum(nil, text))
	if subtle.ConstantTimeCompare([]byte(want), []byte(given)) != 1 {
		return &Error{Code: codeSignature, Message: "The signature of a chunk does not match."}
	}
	d.last = want
	return nil
}

// end reads what comes behind the last chunk: nothing, or the trailer.
func (d *chunked) end() error {
	var signed bytes.Buffer
	given, found := "", map[string]bool{}
	for range maxTrailers {
		line, err := d.line()
		if err == errEnded {
			line, err = nil, nil // the end of the last line is often left out
		}
		if err != nil {
			return err
		}
		if len(line) == 0 {
			if len(found) != len(d.sums) {
				return incomplete("a checksum is missing from the trailer")
			}
			if d.signing != nil && d.trailer {
				hash := sha256.Sum256(signed.Bytes())
				if err := d.compare("AWS4-HMAC-SHA256-TRAILER", "", hash[:], given); err != nil {
					return err
				}
			}
			return io.EOF
		}
		name, value, _ := strings.Cut(string(line), ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if name == "x-amz-trailer-signature" {
			given = value
			continue
		}
		sum := d.sums[name]
		if sum == nil {
			return incomplete("the trailer has what x-amz-trailer does not announce")
		}
		if base64.StdEncoding.EncodeToString(sum.Sum(nil)) != value {
			return &Error{Code: codeBadDigest, Message: "The checksum that was given did not match the body."}
		}
		found[name] = true
		signed.WriteString(name + ":" + value + "\n")
	}
	return incomplete("its trailer is too long")
}

// line reads a line without its end.
func (d *chunked) line() ([]byte, error) {
	line, err := d.src.ReadSlice('\n')
	switch {
	case err == io.EOF && len(line) == 0:
		return nil, errEnded
	case err != nil || len(line) > maxChunkLine:
		return nil, incomplete("it ends in the middle, or has a line that is too long")
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// errEnded is the end of a body where a line was due.
var errEnded = errors.New("the body ends early")

// hashed reads a body whose SHA-256 was signed.
type hashed struct {
	src  io.Reader
	hash hash.Hash
	want string
}

// Read implements io.Reader.
func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.src.Read(p)
	h.hash.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(h.hash.Sum(nil)) != strings.ToLower(h.want) {
		return n, &Error{Code: codeSHA256Mismatch, Message: "The provided 'x-amz-content-sha256' header does not match what was computed."}
	}
	return n, err
}

// held keeps the last byte back until its source has ended well: whoever gets all
// bytes knows that they are right.
type held struct{ src *bufio.Reader }

func newHeld(src io.Reader) *held { return &held{bufio.NewReaderSize(src, heldBytes)} }

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	two, err := h.src.Peek(2)
	switch {
	case err == nil:
		return h.src.Read(p[:min(len(p), h.src.Buffered()-1)])
	case err != io.EOF:
		return 0, err
	case len(two) == 0:
		return 0, io.EOF
	}
	return h.src.Read(p[:1])
}
