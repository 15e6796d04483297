package canon

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// width is the column after which texts fold at the next space.
const width = 80

// shape is what decides how a text may be written.
type shape struct {
	special                  bool // has a character that only an escape can write
	breaks                   bool
	leadSpace, trailSpace    bool
	leadBreak                bool
	breakSpace, spaceBreak   bool // a space after, before a line break
	indicator                bool // would be read as syntax
	unknown                  bool // has a character left to the general library
	singleQuoteOK, literalOK bool
}

// plainByte has the characters that mean nothing to YAML wherever they stand.
var plainByte = func() (t [256]bool) {
	for c := byte('!'); c <= '~'; c++ {
		t[c] = true
	}
	t['#'] = false // only after a space, but then there is a space, too
	return t
}()

// solid tells quickly that a text can stand plainly on one line: it has no
// space and no syntax, and reads as nothing but a text.
func solid(s string) bool {
	if s == "" || s[len(s)-1] == ':' || !firstOK[s[0]] {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !plainByte[s[i]] {
			return false
		}
	}
	return true
}

// firstOK has the characters that may start a text that is certainly a text:
// no indicator, and nothing a number, date, truth value or null starts with.
var firstOK = func() (t [256]bool) {
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range []byte("yYnNtTfFoO") {
		t[c] = false
	}
	t['/'], t['_'], t['$'], t['('], t['<'], t['='], t['\\'], t['^'], t[';'] = true, true, true, true, true, true, true, true, true
	return t
}()

// look analyses a text of valid UTF-8.
func look(s string) shape {
	var p shape
	if strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...") {
		p.indicator = true
	}
	afterBlank, before := true, rune(0)
	for i, r := range s {
		next := i + utf8.RuneLen(r)
		end := next >= len(s)
		beforeBlank := end || s[next] == ' ' || s[next] == '\t'
		if indicates(r, i == 0, afterBlank, beforeBlank) {
			p.indicator = true
		}
		p.characters(r)
		p.blanks(r, before, i == 0, end)
		before = r
		afterBlank = isBlank(r) || isBreak(r) || r == 0
	}
	p.singleQuoteOK = !p.breakSpace && !p.spaceBreak && !p.special
	p.literalOK = s != "" && !p.trailSpace && !p.spaceBreak && !p.special
	return p
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' }
func isBreak(r rune) bool { return r == '\n' || r == '\r' }

// blanks notes where spaces and line breaks stand.
func (p *shape) blanks(r, before rune, first, end bool) {
	switch {
	case r == ' ':
		p.leadSpace = p.leadSpace || first
		p.trailSpace = p.trailSpace || end
		p.breakSpace = p.breakSpace || isBreak(before)
	case isBreak(r):
		p.breaks = true
		p.leadBreak = p.leadBreak || first
		p.spaceBreak = p.spaceBreak || before == ' '
	}
}

// characters sorts one character: printable, to be escaped, or unknown.
func (p *shape) characters(r rune) {
	switch {
	case r == '\n' || r >= 0x20 && r < 0x7f:
	case r < 0x20 || r > 0xffff:
		p.special = true
	case r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r >= 0xfffe:
		// Controls, line separators and byte order marks: the general library
		// may even refuse them.
		p.unknown = true
	}
}

// indicates tells whether a character makes a plain text mean something else.
func indicates(r rune, first, afterBlank, beforeBlank bool) bool {
	if !first {
		return r == ':' && beforeBlank || r == '#' && afterBlank
	}
	switch r {
	case '#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`':
		return true
	case '?', ':', '-':
		return beforeBlank
	}
	return false
}

// key writes a key of a map, which never folds.
func (w *writer) key(s string) {
	if solid(s) {
		w.buf = append(w.buf, s...)
		return
	}
	p := look(s)
	if p.unknown || p.breaks {
		w.bad = true
		return
	}
	switch {
	case !plainText(s):
		w.double(s, -1)
	case !p.special && !p.leadSpace && !p.trailSpace && !p.indicator:
		w.plain(s, -1)
	case p.singleQuoteOK:
		w.single(s, -1)
	default:
		w.double(s, -1)
	}
}

// scalar writes a text and tells whether it has ended the line.
func (w *writer) scalar(s string, indent int) (ended bool) {
	if solid(s) {
		w.buf = append(w.buf, s...)
		return false
	}
	p := look(s)
	if p.unknown {
		w.bad = true
		return false
	}
	if strings.IndexByte(s, '\n') >= 0 {
		if p.literalOK {
			w.literal(s, p, indent)
			return true
		}
		w.double(s, indent)
		return false
	}
	plain := !p.breaks && !p.special && !p.leadSpace && !p.trailSpace && !p.indicator
	switch {
	case !plainText(s):
		w.double(s, indent)
	case plain:
		w.plain(s, indent)
	case p.singleQuoteOK:
		w.single(s, indent)
	default:
		w.double(s, indent)
	}
	return false
}

// rune writes one character of the text.
func (w *writer) rune(s string, i, size int) {
	w.buf = append(w.buf, s[i:i+size]...)
	w.wide += size - 1
}

// fold breaks the line and goes to indent.
func (w *writer) fold(indent int) {
	w.newline()
	w.pad(indent)
}

// plain writes a text as it is. A negative indent forbids folding.
func (w *writer) plain(s string, indent int) {
	spaces := false
	for i, r := range s {
		size := utf8.RuneLen(r)
		if r == ' ' && indent >= 0 && !spaces && w.column() > width && s[i+1] != ' ' {
			w.fold(indent)
		} else {
			w.rune(s, i, size)
		}
		spaces = r == ' '
	}
}

func (w *writer) single(s string, indent int) {
	w.buf = append(w.buf, '\'')
	spaces := false
	for i, r := range s {
		size := utf8.RuneLen(r)
		switch {
		case r == ' ' && indent >= 0 && !spaces && w.column() > width && i > 0 && i < len(s)-1 && s[i+1] != ' ':
			w.fold(indent)
		case r == '\'':
			w.buf = append(w.buf, "''"...)
		default:
			w.rune(s, i, size)
		}
		spaces = r == ' '
	}
	w.buf = append(w.buf, '\'')
}

func (w *writer) double(s string, indent int) {
	w.buf = append(w.buf, '"')
	spaces := false
	for i, r := range s {
		size := utf8.RuneLen(r)
		switch {
		case r < 0x20 || r > 0xffff || r == '"' || r == '\\':
			w.escape(r)
		case r == ' ' && indent >= 0 && !spaces && w.column() > width && i > 0 && i < len(s)-1:
			w.fold(indent)
			if s[i+1] == ' ' {
				w.buf = append(w.buf, '\\')
			}
		default:
			w.rune(s, i, size)
		}
		spaces = r == ' '
	}
	w.buf = append(w.buf, '"')
}

// shortEscape has the escapes of one letter.
var shortEscape = map[rune]byte{
	0: '0', 7: 'a', 8: 'b', 9: 't', 10: 'n', 11: 'v', 12: 'f', 13: 'r', 0x1b: 'e', '"': '"', '\\': '\\',
}

func (w *writer) escape(r rune) {
	w.buf = append(w.buf, '\\')
	if c, ok := shortEscape[r]; ok {
		w.buf = append(w.buf, c)
		return
	}
	letter, digits := byte('x'), 2
	if r > 0xffff {
		letter, digits = 'U', 8
	}
	w.buf = append(w.buf, letter)
	for shift := (digits - 1) * 4; shift >= 0; shift -= 4 {
		w.buf = append(w.buf, "0123456789ABCDEF"[r>>shift&15])
	}
}

// literal writes a block and ends the line.
func (w *writer) literal(s string, p shape, indent int) {
	w.buf = append(w.buf, '|')
	if p.leadSpace || p.leadBreak {
		w.buf = append(w.buf, '2')
	}
	body := strings.TrimRight(s, "\n")
	switch len(s) - len(body) {
	case 0:
		w.buf = append(w.buf, '-')
	case 1:
		if body == "" {
			w.buf = append(w.buf, '+')
		}
	default:
		w.buf = append(w.buf, '+')
	}
	w.newline()
	for len(s) > 0 {
		line, rest, _ := strings.Cut(s, "\n")
		if line != "" {
			w.pad(indent)
			w.buf = append(w.buf, line...)
		}
		w.newline()
		s = rest
	}
}

// keyLess orders keys for people: letters after everything else, numbers by
// their value.
func keyLess(a, b string) bool {
	if a == b {
		return false
	}
	ar, br := []rune(a), []rune(b)
	for i := 0; i < len(ar) && i < len(br); i++ {
		if ar[i] == br[i] {
			continue
		}
		aLetter, bLetter := unicode.IsLetter(ar[i]), unicode.IsLetter(br[i])
		switch {
		case aLetter && bLetter:
			return ar[i] < br[i]
		case aLetter || bLetter:
			return bLetter
		}
		return numberLess(ar, br, i)
	}
	return len(ar) < len(br)
}

// numberLess compares what starts at i, where the two first differ.
func numberLess(a, b []rune, i int) bool {
	// A zero inside a number is not a leading one.
	var base int64
	if a[i] == '0' || b[i] == '0' {
		for j := i - 1; j >= 0 && unicode.IsDigit(a[j]); j-- {
			if a[j] != '0' {
				base = 1
				break
			}
		}
	}
	value := func(r []rune) (v int64, end int) {
		v, end = base, i
		for ; end < len(r) && unicode.IsDigit(r[end]); end++ {
			v = v*10 + int64(r[end]-'0')
		}
		return v, end
	}
	av, aEnd := value(a)
	bv, bEnd := value(b)
	switch {
	case av != bv:
		return av < bv
	case aEnd != bEnd:
		return aEnd < bEnd
	}
	return a[i] < b[i]
}

// words are the texts that YAML 1.1 reads as a truth value, null or a number.
var words = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields("y Y yes Yes YES true True TRUE on On ON n N no No NO false False FALSE off Off OFF ~ null Null NULL .nan .NaN .NAN .inf .Inf .INF +.inf +.Inf +.INF -.inf -.Inf -.INF") {
		m[w] = true
	}
	return m
}()

var (
	floatText  = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	base60Text = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$`)
)

// plainText tells whether YAML 1.1 reads a text as a text when it stands there
// without quotes.
func plainText(s string) bool {
	if s == "" {
		return false
	}
	switch c := s[0]; {
	case strings.IndexByte("yYnNtTfFoO~", c) >= 0:
		return !words[s]
	case c == '.':
		if words[s] {
			return false
		}
		_, err := strconv.ParseFloat(s, 64)
		return err != nil
	case c == '+' || c == '-' || c >= '0' && c <= '9':
		return !words[s] && !isTime(s) && !isNumber(strings.ReplaceAll(s, "_", "")) && !base60Text.MatchString(s)
	}
	return true
}

func isNumber(s string) bool {
	if _, err := strconv.ParseInt(s, 0, 64); err == nil {
		return true
	}
	if _, err := strconv.ParseUint(s, 0, 64); err == nil {
		return true
	}
	if !floatText.MatchString(s) {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// isTime knows the dates and times that YAML 1.1 reads as such.
func isTime(s string) bool {
	if len(s) < 6 || s[4] != '-' {
		return false
	}
	for i := range 4 {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	for _, layout := range []string{
		"2006-1-2T15:4:5.999999999Z07:00",
		"2006-1-2t15:4:5.999999999Z07:00",
		"2006-1-2 15:4:5.999999999",
		"2006-1-2",
	} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}
