package rawjson_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"millwright.io/millwright/internal/engine/ignition/rawjson"
)

// value reads anything; ok only matters together with Done.
func value(r *rawjson.Reader, depth int) any {
	if depth > 100 {
		r.Refuse()
		return nil
	}
	switch r.Peek() {
	case '{':
		m := map[string]any{}
		r.Object(func(key string) { m[key] = value(r, depth+1) })
		return m
	case '[':
		l := []any{}
		r.Array(func() { l = append(l, value(r, depth+1)) })
		return l
	case '"':
		return r.String()
	case 't', 'f':
		return r.Bool()
	case 'n':
		r.Null()
		return nil
	}
	return float64(r.Int())
}

// FuzzReader: what is read, encoding/json reads the same way.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"a":[1,-2,true,false,null,"x"]}`, `{"a":1,"a":2}`, `{"a":1,}`, `[1 2]`, `"\u00e9\ud83d\ude00\n\/"`, `"\ud83d"`, "\"\xff\"", "\"\n\"", `01`, `-`, `1.5`, `1e3`, `{"a"}`, `[`, `"`, `tru`, ` [ ] `, `[]x`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		r := rawjson.New(src)
		got := value(r, 0)
		if !r.Done() {
			return
		}
		var want any
		if err := json.Unmarshal([]byte(src), &want); err != nil {
			t.Fatalf("read %q, but %v", src, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
	})
}

func TestReaderReadsWhatEncodersWrite(t *testing.T) {
	const src = `{"list":[1,{"text":"a\nb","yes":true}],"none":null}`
	r := rawjson.New(src)
	got := value(r, 0)
	if !r.Done() {
		t.Fatal("refused plain JSON")
	}
	want := map[string]any{"list": []any{1.0, map[string]any{"text": "a\nb", "yes": true}}, "none": nil}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReaderSharesTheTextsMemory(t *testing.T) {
	src := `["some text without escapes"]`
	n := testing.AllocsPerRun(100, func() {
		r := rawjson.New(src)
		r.Array(func() { _ = r.String() })
	})
	if n > 1 {
		t.Errorf("got %v allocations, want the reader at most", n)
	}
}
