// Package rawjson walks JSON text without building a tree: it tells what comes
// next and hands out strings that share the text's memory. It is a strict
// subset of encoding/json: what it cannot read exactly as encoding/json would,
// it refuses, and the caller falls back. It never allocates for strings
// without escapes and never recurses by itself.
package rawjson

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Reader stands at one place of a text.
type Reader struct {
	src string
	pos int
	bad bool
}

// New starts at the beginning of src, which must be valid UTF-8; otherwise
// everything is refused.
func New(src string) *Reader {
	return &Reader{src: src, bad: !utf8.ValidString(src)}
}

// Refuse makes the whole reading fail.
func (r *Reader) Refuse() { r.bad = true }

// Done tells that the text is over and all of it was read.
func (r *Reader) Done() bool {
	r.space()
	return !r.bad && r.pos == len(r.src)
}

func (r *Reader) space() {
	for r.pos < len(r.src) {
		switch r.src[r.pos] {
		case ' ', '\n', '\t', '\r':
			r.pos++
		default:
			return
		}
	}
}

// Peek returns the first character of the next value: { [ " t f n - or a digit;
// 0 at the end or after a refusal.
func (r *Reader) Peek() byte {
	if r.bad {
		return 0
	}
	r.space()
	if r.pos >= len(r.src) {
		return 0
	}
	return r.src[r.pos]
}

func (r *Reader) take(c byte) bool {
	if r.Peek() != c {
		return false
	}
	r.pos++
	return true
}

func (r *Reader) must(c byte) {
	if !r.take(c) {
		r.bad = true
	}
}

// maxKeys bounds the keys of an object that Object compares with each other.
const maxKeys = 32

// Object reads an object and calls f at the value of each key. f must read the
// value. A key that comes twice is refused, since readers differ about it.
func (r *Reader) Object(f func(key string)) {
	r.must('{')
	if r.bad || r.take('}') {
		return
	}
	var seen [maxKeys]string
	for n := 0; ; n++ {
		key := r.String()
		r.must(':')
		if n >= maxKeys {
			r.bad = true
		}
		for i := 0; i < n && !r.bad; i++ {
			r.bad = seen[i] == key
		}
		if r.bad {
			return
		}
		seen[n] = key
		f(key)
		if r.bad || r.take('}') {
			return
		}
		r.must(',')
	}
}

// Array reads an array and calls f at each value. f must read the value.
func (r *Reader) Array(f func()) {
	r.must('[')
	if r.bad || r.take(']') {
		return
	}
	for {
		f()
		if r.bad || r.take(']') {
			return
		}
		r.must(',')
	}
}

// String reads a string.
func (r *Reader) String() string {
	r.must('"')
	if r.bad {
		return ""
	}
	rest := r.src[r.pos:]
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			r.pos += i + 1
			return rest[:i]
		case c == '\\':
			return r.escaped(i)
		case c < 0x20:
			r.bad = true
			return ""
		}
	}
	r.bad = true
	return ""
}

// escaped reads a string whose first escape is n bytes ahead.
func (r *Reader) escaped(n int) string {
	var b strings.Builder
	rest := r.src[r.pos:]
	start := 0
	for i := n; i < len(rest); {
		c := rest[i]
		switch {
		case c == '"':
			b.WriteString(rest[start:i])
			r.pos += i + 1
			return b.String()
		case c < 0x20:
			r.bad = true
			return ""
		case c != '\\':
			i++
			continue
		}
		b.WriteString(rest[start:i])
		value, size := unescape(rest[i:])
		if size == 0 {
			r.bad = true
			return ""
		}
		b.WriteRune(value)
		i += size
		start = i
	}
	r.bad = true
	return ""
}

// unescape reads one escape; size 0 means that it is wrong.
func unescape(s string) (value rune, size int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return unicodeEscape(s)
	}
	return 0, 0
}

// unicodeEscape reads \uXXXX, or two of them that are a surrogate pair.
func unicodeEscape(s string) (value rune, size int) {
	first, ok := hex4(s[2:])
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(first) {
		return first, 6
	}
	if len(s) < 12 || s[6] != '\\' || s[7] != 'u' {
		return 0, 0
	}
	second, ok := hex4(s[8:])
	pair := utf16.DecodeRune(first, second)
	if !ok || pair == utf8.RuneError {
		return 0, 0
	}
	return pair, 12
}

func hex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var v rune
	for i := range 4 {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}

// Bool reads true or false.
func (r *Reader) Bool() bool {
	switch r.Peek() {
	case 't':
		r.word("true")
		return true
	case 'f':
		r.word("false")
	default:
		r.bad = true
	}
	return false
}

// Null reads null.
func (r *Reader) Null() {
	r.space()
	r.word("null")
}

func (r *Reader) word(w string) {
	if !strings.HasPrefix(r.src[r.pos:], w) {
		r.bad = true
		return
	}
	r.pos += len(w)
}

// Number returns the text of a number.
func (r *Reader) Number() string {
	r.Peek()
	start := r.pos
	for r.pos < len(r.src) {
		switch c := r.src[r.pos]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			r.pos++
			continue
		}
		break
	}
	if start == r.pos {
		r.bad = true
	}
	return r.src[start:r.pos]
}

// Int reads an integer without exponent, of at most 18 digits.
func (r *Reader) Int() int {
	text := r.Number()
	digits := strings.TrimPrefix(text, "-")
	if len(digits) == 0 || len(digits) > 18 || len(digits) > 1 && digits[0] == '0' {
		r.bad = true
		return 0
	}
	v, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' {
		r.bad = true
		return 0
	}
	return v
}
