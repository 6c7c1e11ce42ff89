package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const formS3Keys = `a JSON list of {"access_key","secret_key","access","paths"}, access being read (the default) or read_write, ` +
	`paths a list of bucket or bucket/prefix (all when left out), or nothing`

func frontKeys() []Key {
	return []Key{
		{Name: "s3_front_keys", Kind: String, Secret: true, Form: formS3Keys, check: isS3Keys,
			Help: "Key pairs that sign requests to s3_port, and what each may do; empty lets s3_access_key do everything."},
		{Name: "s3_front_anonymous", Kind: String, Default: "none", Form: "none, read or read_write", check: isS3Access,
			Help: "What may be done at s3_port without a signature."},
		{Name: "s3_front_read_only", Kind: Bool, Default: "false",
			Help: "Whether s3_port refuses all that changes something; off passes it on to the object store."},
		{Name: "s3_front_revalidate_ms", Kind: Int, Default: "1000", Min: -1, Max: day * 1000, Unit: "ms",
			Help: "How long what is known of an object holds for reads through s3_port; 0 asks the store each time, -1 never."},
		{Name: "s3_front_readahead_blocks", Kind: Int, Default: "16", Min: 1, Max: 64, Unit: "blocks",
			Help: "Blocks that one answer of s3_port may have under way."},
		{Name: "s3_front_domains", Kind: String, Default: "localhost", Form: formHosts, check: isHosts,
			Help: "Host names that a bucket's name may stand before, as in bucket.s3.example.com; other requests have it in the path."},
	}
}

const formHosts = "host names separated by commas, or nothing"

func isHosts(s string) bool { return each(s, isHost) }

func isS3Access(s string) bool { return s == "none" || s == "read" || s == "read_write" }

// S3Key is a pair that signs requests to the S3 front.
type S3Key struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	// Access is read or read_write.
	Access string `json:"access"`
	// Paths are buckets and bucket/prefix; none means everything.
	Paths []string `json:"paths"`
}

// ParseS3Keys reads the value of s3_front_keys.
func ParseS3Keys(text string) ([]S3Key, error) {
	if text == "" {
		return nil, nil
	}
	var keys []S3Key
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&keys); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("want one JSON list and nothing behind it")
	}
	seen := map[string]bool{}
	for i := range keys {
		k := &keys[i]
		if k.Access == "" {
			k.Access = "read"
		}
		noBucket := func(path string) bool { return path == "" || strings.HasPrefix(path, "/") }
		switch {
		case k.AccessKey == "" || k.SecretKey == "":
			return nil, fmt.Errorf("entry %d: want access_key and secret_key", i+1)
		case seen[k.AccessKey]:
			return nil, fmt.Errorf("entry %d: its access_key is given twice", i+1)
		case k.Access != "read" && k.Access != "read_write":
			return nil, fmt.Errorf("entry %d: want access to be read or read_write", i+1)
		case slices.ContainsFunc(k.Paths, noBucket):
			return nil, fmt.Errorf("entry %d: want paths that begin with a bucket", i+1)
		}
		seen[k.AccessKey] = true
	}
	return keys, nil
}

func isS3Keys(s string) bool {
	_, err := ParseS3Keys(s)
	return err == nil
}
