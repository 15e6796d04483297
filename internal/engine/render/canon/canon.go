// Package canon turns JSON into the YAML whose digest names a rendered config,
// byte for byte as the YAML library of the original writes it: sorted keys,
// two-space indent, YAML 1.1 quoting, folding after column 80. It exists
// because the general library takes most of the time of a render. It decides
// nothing, and says so when it meets something it does not know: then the
// caller asks the general library.
package canon

import (
	"slices"
	"strconv"
	"strings"

	"millwright.io/millwright/internal/engine/ignition/rawjson"
)

// maxDepth and maxKey keep out what the general library treats specially: deep
// nesting, and keys that it would not write on one line with their value.
const (
	maxDepth = 64
	maxKey   = 100
)

type kind uint8

const (
	object kind = iota
	array
	text
	literal // number, true, false or null, as written
)

// node is one value; its children are linked.
type node struct {
	kind        kind
	key, value  string
	first, next int32 // 0 is none: node 0 is the root and nobody's child
	count       int32
}

// Document is a map under construction.
type Document struct {
	nodes []node
	bad   bool
	depth int
}

// New starts an empty map. size is the expected number of bytes of JSON.
func New(size int) *Document {
	d := &Document{nodes: make([]node, 1, 16+size/48)}
	return d
}

// Text, Bool and Texts add members to the map. A nil list is null.
func (d *Document) Text(key, value string) { d.add(0, node{kind: text, key: key, value: value}) }

// Bool adds a truth value.
func (d *Document) Bool(key string, value bool) {
	d.add(0, node{kind: literal, key: key, value: strconv.FormatBool(value)})
}

// Texts adds a list of strings.
func (d *Document) Texts(key string, values []string) {
	if values == nil {
		d.Null(key)
		return
	}
	list := d.add(0, node{kind: array, key: key})
	for _, v := range values {
		d.add(list, node{kind: text, value: v})
	}
}

// Null adds null.
func (d *Document) Null(key string) { d.add(0, node{kind: literal, key: key, value: "null"}) }

// JSON adds a value given as JSON.
func (d *Document) JSON(key, src string) {
	if escapesDiffer(src) {
		d.bad = true
		return
	}
	r := rawjson.New(src)
	d.read(r, 0, key)
	d.bad = d.bad || !r.Done()
}

// escapesDiffer finds escapes of JSON that YAML does not know.
func escapesDiffer(src string) bool {
	for {
		i := strings.IndexByte(src, '\\')
		if i < 0 || i+2 >= len(src) {
			return false
		}
		if c := src[i+1]; c == '/' || c == 'u' && src[i+2]|0x20 == 'd' {
			return true
		}
		src = src[i+2:]
	}
}

// add puts a node in front of its siblings; the order is made when writing.
func (d *Document) add(parent int32, n node) int32 {
	at := int32(len(d.nodes))
	n.next = d.nodes[parent].first
	d.nodes = append(d.nodes, n)
	d.nodes[parent].first = at
	d.nodes[parent].count++
	return at
}

func (d *Document) read(r *rawjson.Reader, parent int32, key string) {
	if len(key) > maxKey || d.depth > maxDepth {
		d.bad = true
		r.Refuse()
		return
	}
	switch c := r.Peek(); c {
	case '{':
		at := d.add(parent, node{kind: object, key: key})
		d.depth++
		r.Object(func(key string) { d.read(r, at, key) })
		d.depth--
	case '[':
		at := d.add(parent, node{kind: array, key: key})
		d.depth++
		r.Array(func() { d.read(r, at, "") })
		d.depth--
	case '"':
		d.add(parent, node{kind: text, key: key, value: r.String()})
	case 't', 'f':
		d.add(parent, node{kind: literal, key: key, value: strconv.FormatBool(r.Bool())})
	case 'n':
		r.Null()
		d.add(parent, node{kind: literal, key: key, value: "null"})
	default:
		v := r.Int()
		if v == 0 && c == '-' {
			r.Refuse()
		}
		d.add(parent, node{kind: literal, key: key, value: strconv.Itoa(v)})
	}
}

// YAML writes the map. ok is false if the general library has to do it.
func (d *Document) YAML() (out []byte, ok bool) {
	if d.bad {
		return nil, false
	}
	size := 256
	for i := range d.nodes {
		size += len(d.nodes[i].key) + len(d.nodes[i].value) + 12
	}
	w := &writer{nodes: d.nodes, buf: make([]byte, 0, size)}
	w.object(0, 0)
	if w.bad {
		return nil, false
	}
	return w.buf, true
}

// writer writes nodes; the line it is on decides where long texts fold.
type writer struct {
	nodes   []node
	buf     []byte
	line    int // where the current line starts
	wide    int // bytes of the line that are no columns: all but the first of a rune
	scratch []int32
	bad     bool
}

func (w *writer) column() int { return len(w.buf) - w.line - w.wide }

func (w *writer) newline() {
	w.buf = append(w.buf, '\n')
	w.line, w.wide = len(w.buf), 0
}

func (w *writer) pad(indent int) {
	for w.column() < indent {
		w.buf = append(w.buf, ' ')
	}
}

// children returns the children of a node, in the order they were read, on the
// shared stack; the caller gives them back by cutting the stack to mark.
func (w *writer) children(at int32) (list []int32, mark int) {
	mark = len(w.scratch)
	for c := w.nodes[at].first; c != 0; c = w.nodes[c].next {
		w.scratch = append(w.scratch, c)
	}
	list = w.scratch[mark:]
	slices.Reverse(list)
	return list, mark
}

// object writes the members of a map, the first on the current line, which must
// stand at indent or before.
func (w *writer) object(at int32, indent int) {
	list, mark := w.children(at)
	slices.SortStableFunc(list, func(a, b int32) int {
		switch ka, kb := w.nodes[a].key, w.nodes[b].key; {
		case keyLess(ka, kb):
			return -1
		case keyLess(kb, ka):
			return 1
		}
		return 0
	})
	for i := range len(list) {
		c := w.scratch[mark+i]
		w.pad(indent)
		n := &w.nodes[c]
		w.key(n.key)
		w.buf = append(w.buf, ':')
		switch {
		case n.kind == object && n.count > 0:
			w.newline()
			w.object(c, indent+2)
		case n.kind == array && n.count > 0:
			// Items of a list stand under their key.
			w.newline()
			w.array(c, indent)
		default:
			w.leaf(n, indent+2)
		}
	}
	w.scratch = w.scratch[:mark]
}

func (w *writer) array(at int32, indent int) {
	list, mark := w.children(at)
	for i := range len(list) {
		c := w.scratch[mark+i]
		w.pad(indent)
		w.buf = append(w.buf, '-')
		n := &w.nodes[c]
		switch {
		case n.kind == object && n.count > 0:
			w.object(c, indent+2)
		case n.kind == array && n.count > 0:
			w.array(c, indent+2)
		default:
			w.leaf(n, indent+2)
		}
	}
	w.scratch = w.scratch[:mark]
}

// leaf writes a value after its key or dash and ends the line. Further lines of
// it stand at indent.
func (w *writer) leaf(n *node, indent int) {
	w.buf = append(w.buf, ' ')
	switch n.kind {
	case object:
		w.buf = append(w.buf, "{}"...)
	case array:
		w.buf = append(w.buf, "[]"...)
	case literal:
		w.buf = append(w.buf, n.value...)
	case text:
		if w.scalar(n.value, indent) {
			return
		}
	}
	w.newline()
}
