package ignition

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	v2_0 "github.com/coreos/ignition/config/v2_0/types"
	v2_3 "github.com/coreos/ignition/config/v2_3/types"
	v2_4 "github.com/coreos/ignition/config/v2_4/types"
	"github.com/coreos/ignition/config/validate/report"
)

// readV2 decodes spec 2.minor, drops keys that the version did not know, checks
// it and lifts it to 2.4, whose types hold all of spec 2. Versions 2.1 and 2.2
// are read as 2.3: the modules of their own types cannot be resolved any more,
// and 2.3 adds keys only.
func readV2(raw []byte, minor int64) (v2_4.Config, error) {
	var typed any
	switch minor {
	case 0:
		typed = &v2_0.Config{}
	case 1, 2, 3:
		typed = &v2_3.Config{}
	default:
		typed = &v2_4.Config{}
	}
	if err := json.Unmarshal(raw, typed); err != nil {
		text := err.Error()
		return v2_4.Config{}, &Error{
			Wire:     wireV2("config is not valid", "error: "+text),
			Problems: []Problem{{Detail: "this is not the JSON of an Ignition config: " + text + position(raw, err)}},
		}
	}
	if cfg, ok := typed.(*v2_3.Config); ok {
		forget(cfg, minor)
	}
	var c checker
	c.walk(reflect.ValueOf(typed).Elem(), "")
	if problems := fatal(c.problems); len(problems) > 0 {
		return v2_4.Config{}, &Error{Wire: wireV2("config is not valid", c.rpt.String()), Problems: problems}
	}
	if same, ok := typed.(*v2_4.Config); ok {
		return *same, nil
	}
	// The JSON of the versions differs by additions only.
	lifted, err := json.Marshal(typed)
	if err != nil {
		return v2_4.Config{}, &Error{Wire: wireV2("config is not valid", "error: "+err.Error()), Problems: []Problem{{Detail: err.Error()}}}
	}
	var out v2_4.Config
	if err := json.Unmarshal(lifted, &out); err != nil {
		return v2_4.Config{}, &Error{Wire: wireV2("config is not valid", "error: "+err.Error()), Problems: []Problem{{Detail: err.Error()}}}
	}
	spellOut(&out, minor)
	return out, nil
}

// forget drops what 2.3 can say and 2.minor could not.
func forget(cfg *v2_3.Config, minor int64) {
	if minor > 2 {
		return
	}
	for i := range cfg.Storage.Disks {
		for j := range cfg.Storage.Disks[i].Partitions {
			p := &cfg.Storage.Disks[i].Partitions[j]
			p.ShouldExist, p.SizeMiB, p.StartMiB, p.WipePartitionEntry = nil, nil, nil, false
		}
	}
	if minor > 1 {
		return
	}
	cfg.Ignition.Security = v2_3.Security{}
	for i := range cfg.Storage.Files {
		f := &cfg.Storage.Files[i]
		f.Append, f.Overwrite = false, nil
	}
	for i := range cfg.Storage.Directories {
		cfg.Storage.Directories[i].Overwrite = nil
	}
	for i := range cfg.Storage.Links {
		cfg.Storage.Links[i].Overwrite = nil
	}
	for i := range cfg.Networkd.Units {
		cfg.Networkd.Units[i].Dropins = nil
	}
}

// spellOut writes down what older versions could not leave unsaid: 2.0 always
// had owners, 2.1 always had modes, 2.2 always had sizes and labels. It shows
// in the rendered config, and so in its name.
func spellOut(cfg *v2_4.Config, minor int64) {
	zero := func(p **int) {
		if *p == nil {
			*p = new(int)
		}
	}
	for i := range cfg.Storage.Files {
		f := &cfg.Storage.Files[i]
		if minor < 1 {
			f.User, f.Group = orNew(f.User), orNew(f.Group)
			zero(&f.User.ID)
			zero(&f.Group.ID)
		}
		if minor < 2 {
			zero(&f.Mode)
		}
	}
	if minor < 2 {
		for i := range cfg.Storage.Directories {
			zero(&cfg.Storage.Directories[i].Mode)
		}
	}
	if minor < 3 {
		for i := range cfg.Storage.Disks {
			for j := range cfg.Storage.Disks[i].Partitions {
				p := &cfg.Storage.Disks[i].Partitions[j]
				zero(&p.Size)
				zero(&p.Start)
				p.Label = orNew(p.Label)
			}
		}
	}
}

func orNew[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// checkV2 runs the rules of spec 2.4.
func checkV2(cfg v2_4.Config) (report.Report, []Problem) {
	var c checker
	c.walk(reflect.ValueOf(cfg), "")
	return c.rpt, c.problems
}

// checker calls the Validate methods that the official types of spec 2 have:
// Validate of a value and ValidateX for its field X.
type checker struct {
	rpt      report.Report
	problems []Problem
}

type selfChecked interface{ Validate() report.Report }

var selfCheckedType = reflect.TypeFor[selfChecked]()

// add keeps the findings and tells whether one is fatal.
func (c *checker) add(r report.Report, path string, v reflect.Value) bool {
	c.rpt.Merge(r)
	for _, e := range r.Entries {
		c.problems = append(c.problems, Problem{
			Path:    path,
			Value:   entryName(v),
			Detail:  explain(e.Message),
			Warning: e.Kind != report.EntryError,
		})
	}
	return r.IsFatal()
}

func (c *checker) walk(v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	// A method of the value is also one of its pointer; call it once.
	once := v.Kind() != reflect.Pointer || !v.Type().Elem().Implements(selfCheckedType)
	if obj, ok := v.Interface().(selfChecked); ok && once {
		if c.add(obj.Validate(), path, v) {
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		c.walk(v.Elem(), path)
	case reflect.Struct:
		c.walkStruct(v, v, path)
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(v.Index(i), join(path, fmt.Sprint(i)))
		}
	}
}

// walkStruct visits the fields of v, which is outer or embedded in it.
func (c *checker) walkStruct(outer, v reflect.Value, path string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			c.walkStruct(outer, v.Field(i), path)
			continue
		}
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at := join(path, tag)
		if m := outer.MethodByName("Validate" + field.Name); m.IsValid() && m.Type().NumIn() == 0 {
			if r, ok := m.Call(nil)[0].Interface().(report.Report); ok {
				c.add(r, at, outer)
			}
		}
		if field.IsExported() {
			c.walk(v.Field(i), at)
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// entryName is the path or name of the entry a rule looked at.
func entryName(v reflect.Value) string {
	if v.Kind() != reflect.Struct {
		return ""
	}
	for _, key := range []string{"Path", "Name", "Device"} {
		if f := v.FieldByName(key); f.IsValid() && f.Kind() == reflect.String {
			return short(f.String())
		}
	}
	return ""
}
