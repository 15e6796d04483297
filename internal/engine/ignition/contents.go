package ignition

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

// MaxContents bounds what one resource may decode to, so that a small gzip
// cannot fill the memory.
const MaxContents = 64 << 20

// ErrRemote says that the content is somewhere else and that nobody here
// fetches it.
var ErrRemote = errors.New("the source is not a data URL")

// Contents returns the bytes a resource stands for: the decoded data URL,
// decompressed. A resource without a source is empty. It fails with ErrRemote
// on sources that would have to be fetched.
func Contents(r types.Resource) ([]byte, error) {
	if r.Source == nil || *r.Source == "" {
		return nil, nil
	}
	data, err := decodeDataURL(*r.Source)
	if err != nil {
		return nil, err
	}
	if r.Compression == nil || *r.Compression == "" {
		return data, nil
	}
	if *r.Compression != "gzip" {
		return nil, fmt.Errorf(`decompress: compression %q is unknown; want "" or "gzip"`, short(*r.Compression))
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(zr, MaxContents+1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) > MaxContents {
		return nil, fmt.Errorf("decompress: more than %d bytes", MaxContents)
	}
	return out, nil
}

// decodeDataURL is quick for the common shapes and leaves the rest to the
// official decoder.
func decodeDataURL(source string) ([]byte, error) {
	if len(source) < len("data:") || !strings.EqualFold(source[:len("data:")], "data:") {
		return nil, ErrRemote
	}
	if len(source) > 2*MaxContents {
		return nil, fmt.Errorf("decode data URL: more than %d bytes", 2*MaxContents)
	}
	if out, ok := decodeSimple(source); ok {
		return out, nil
	}
	u, err := dataurl.DecodeString(source)
	if err != nil {
		return nil, fmt.Errorf("decode data URL: %w", err)
	}
	return u.Data, nil
}

// decodeSimple knows the media types that encoders write. ok is false when the
// official decoder has to look.
func decodeSimple(source string) ([]byte, bool) {
	head, body, found := strings.Cut(source, ",")
	if !found {
		return nil, false
	}
	switch head {
	case "data:", "data:text/plain;charset=utf-8", "data:text/plain":
		if !plainBody(body) {
			return nil, false
		}
		text, err := url.PathUnescape(body)
		return []byte(text), err == nil
	case "data:;base64", "data:text/plain;charset=utf-8;base64", "data:text/plain;base64":
		out, err := base64.StdEncoding.DecodeString(body)
		return out, err == nil && !strings.ContainsAny(body, "\r\n")
	}
	return nil, false
}

// plainBody tells whether every character may stand in a data URL, so that the
// official decoder would accept the text, too.
func plainBody(body string) bool {
	for i := 0; i < len(body); i++ {
		if !dataURLChar[body[i]] {
			return false
		}
		if body[i] == '%' && (i+2 >= len(body) || !isHex(body[i+1]) || !isHex(body[i+2])) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// dataURLChar holds the characters a data URL may have after its comma.
var dataURLChar = func() (t [256]bool) {
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for c := byte('0'); c <= '9'; c++ {
		t[c] = true
	}
	for _, c := range []byte("-_.!~*'();/?:@&=+$,%") {
		t[c] = true
	}
	return t
}()
