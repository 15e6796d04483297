package transition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/disruption"
)

// model is a host as simple as it can be: what a step says is there, is there.
type model struct {
	states map[Ref]State
	blobs  Blobs
	units  []string
	booted string
	kargs  []string
}

func newModel() *model {
	return &model{states: map[Ref]State{}, blobs: Blobs{}, booted: "image-0", kargs: []string{"quiet"}}
}

func (m *model) put(p, body string, mode uint32) {
	d := Digest([]byte(body))
	m.blobs[d] = []byte(body)
	m.states[Ref{KindFile, p}] = State{Type: File, Mode: mode, Digest: d}
}

func (m *model) facts() Facts {
	return Facts{
		ID: "rhcos", Class: CoreOS, EnterpriseLinux: true, Arch: "amd64", Kernel: RPMOSTree, Image: RPMOSTree, Live: true,
		BootID: "boot-1", Booted: m.booted, SSHKeys: "/home/core/.ssh/authorized_keys.d/ignition",
		Users: map[string]User{"core": {UID: 1000, GID: 1000, Home: "/home/core"}, "root": {}}, UnitFiles: m.units,
	}
}

func (m *model) observe(refs []Ref) map[Ref]State {
	out := map[Ref]State{}
	for _, r := range refs {
		switch r.Kind {
		case KindKernelArguments:
			out[r] = State{Type: List, Values: slices.Clone(m.kargs)}
		case KindImage:
			out[r] = State{Type: Value, Value: m.booted}
		default:
			s, ok := m.states[r]
			if !ok {
				s = State{Type: Absent}
			}
			out[r] = s
		}
	}
	return out
}

// perform does a step; a unit's links follow from the word.
func (m *model) perform(s Step, blobs Blobs) {
	maps.Copy(m.blobs, blobs)
	switch {
	case s.Effect():
	case s.Kind == KindImage:
		m.booted = s.After.Value
	case s.Kind == KindKernelArguments:
		m.kargs = slices.DeleteFunc(m.kargs, func(a string) bool {
			return slices.Contains(s.Before.Values, a) || slices.Contains(s.After.Values, a)
		})
		m.kargs = append(m.kargs, s.After.Values...)
	case s.Kind == KindUnit && s.After.Type == Value && s.After.Value == "enabled":
		m.states[s.Ref] = State{Type: Links, Value: "enabled", Values: []string{"/w/" + s.Key + "\x00../" + s.Key}}
	case s.Kind == KindUnit && s.After.Type == Value:
		m.states[s.Ref] = State{Type: Links, Value: "disabled"}
	case s.Kind == KindUnit && s.After.Value == "" && len(s.After.Values) == 0:
		m.states[s.Ref] = State{Type: Links, Value: "disabled"}
	case s.After.Type == Absent:
		delete(m.states, s.Ref)
	default:
		m.states[s.Ref] = s.After
	}
}

func (m *model) copy() *model {
	c := *m
	c.states, c.kargs, c.blobs = maps.Clone(m.states), slices.Clone(m.kargs), maps.Clone(m.blobs)
	return &c
}

// String is the whole host but its blobs, one thing a line. What is absent or
// disabled is not told from what never was.
func (m *model) String() string {
	var lines []string
	for r, s := range m.states {
		if s.Type == Absent || (r.Kind == KindUnit && s.Value != "enabled") {
			continue
		}
		raw, _ := json.Marshal(s)
		lines = append(lines, fmt.Sprintf("%s %s %s", r.Kind, r.Key, raw))
	}
	slices.Sort(lines)
	kargs := slices.Clone(m.kargs)
	return strings.Join(append(lines, "image "+m.booted, "kargs "+strings.Join(kargs, " ")), "\n")
}

func (m *model) plan(t testing.TB, in Input) Planned {
	t.Helper()
	in.Facts = m.facts()
	refs, err := Touches(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Live, in.Blobs = m.observe(refs), m.blobs
	p, err := Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// config is a spec in the few words tests need.
type config struct {
	Files map[string]string // path → contents, mode 0644 unless "mode:contents"
	Units map[string]unit
	Keys  []string
	Kargs []string
	Image string
}

type unit struct {
	Contents string
	Enabled  *bool
	Mask     *bool
	Dropins  map[string]string
}

func (c config) spec() mcfgv1.MachineConfigSpec {
	type m = map[string]any
	ign := m{"ignition": m{"version": "3.5.0"}}
	var files, units []any
	for _, p := range slices.Sorted(maps.Keys(c.Files)) {
		files = append(files, m{"path": p, "mode": 0o644, "overwrite": true, "contents": m{"source": "data:," + c.Files[p]}})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Units)) {
		u := c.Units[name]
		one := m{"name": name}
		if u.Contents != "" {
			one["contents"] = u.Contents
		}
		if u.Enabled != nil {
			one["enabled"] = *u.Enabled
		}
		if u.Mask != nil {
			one["mask"] = *u.Mask
		}
		var dropins []any
		for _, d := range slices.Sorted(maps.Keys(u.Dropins)) {
			dropins = append(dropins, m{"name": d, "contents": u.Dropins[d]})
		}
		if dropins != nil {
			one["dropins"] = dropins
		}
		units = append(units, one)
	}
	if files != nil {
		ign["storage"] = m{"files": files}
	}
	if units != nil {
		ign["systemd"] = m{"units": units}
	}
	if c.Keys != nil {
		ign["passwd"] = m{"users": []any{m{"name": "core", "sshAuthorizedKeys": c.Keys}}}
	}
	raw, err := json.Marshal(ign)
	if err != nil {
		panic(err)
	}
	return mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}, KernelArguments: c.Kargs, OSImageURL: c.Image}
}

func drawConfig(rt *rapid.T, name string) config {
	body := rapid.SampledFrom([]string{"", "a", "b", "c"})
	c := config{Files: map[string]string{}, Units: map[string]unit{}}
	for _, p := range []string{"/etc/a", "/etc/b", "/etc/d/e", "/usr/local/bin/f", "/etc/kubernetes/kubelet-ca.crt"} {
		if rapid.Bool().Draw(rt, name+p) {
			c.Files[p] = body.Draw(rt, name+p+" contents")
		}
	}
	yes, no := true, false
	word := rapid.SampledFrom([]*bool{nil, &yes, &no})
	for _, n := range []string{"one.service", "two.service", "shipped.service"} {
		if !rapid.Bool().Draw(rt, name+n) {
			continue
		}
		u := unit{Contents: body.Draw(rt, name+n+" contents"), Enabled: word.Draw(rt, name+n+" enabled"), Mask: word.Draw(rt, name+n+" mask")}
		if rapid.Bool().Draw(rt, name+n+" dropin") {
			u.Dropins = map[string]string{"10-x.conf": body.Draw(rt, name+n+" dropin contents")}
		}
		if u.Mask != nil && *u.Mask {
			u.Enabled = nil
		}
		c.Units[n] = u
	}
	c.Keys = rapid.SampledFrom([][]string{nil, {"key one"}, {"key one", "key two"}}).Draw(rt, name+"keys")
	c.Kargs = rapid.SliceOfN(rapid.SampledFrom([]string{"x=1", "y", "z=2"}), 0, 3).Draw(rt, name+"kargs")
	c.Image = rapid.SampledFrom([]string{"image-0", "image-1"}).Draw(rt, name+"image")
	return c
}

// drawHost is a host as its vendor ships it.
func drawHost(rt *rapid.T) *model {
	m := newModel()
	for _, p := range []string{"/etc/a", "/etc/d/e", UnitDir + "/one.service"} {
		if rapid.Bool().Draw(rt, "vendor "+p) {
			m.put(p, rapid.SampledFrom([]string{"vendor's", "a"}).Draw(rt, "vendor's "+p), rapid.SampledFrom([]uint32{0o600, 0o644}).Draw(rt, "mode "+p))
		}
	}
	m.units = []string{"shipped.service"}
	return m
}

func run(m *model, steps []Step, blobs Blobs) {
	for _, s := range steps {
		m.perform(s, blobs)
	}
}

func reboot() []disruption.Action { return []disruption.Action{{Kind: disruption.Reboot}} }
