package blockcache

import "hash/crc32"

// checksum is block.Checksum of bytes that come in pieces.
type checksum struct{ crc uint32 }

func (c *checksum) add(p []byte) {
	c.crc = crc32.Update(c.crc, crc32.MakeTable(crc32.Castagnoli), p)
}
