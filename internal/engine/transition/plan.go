package transition

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// Folders in which the original keeps what was there before it wrote a file.
const (
	OriginalDir   = "/etc/machine-config-daemon/orig"
	NoOriginalDir = "/etc/machine-config-daemon/noorig"
)

// Files of certificate authorities: the agent writes them from the cluster's
// ControllerConfig, so a config neither writes the first one nor removes any.
const (
	kubeletCA  = "/etc/kubernetes/kubelet-ca.crt"
	cloudCA    = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	userCA     = anchors + "/openshift-config-user-ca-bundle.crt"
	registryCA = "/etc/docker/certs.d/"
)

// Record is a file of the agent's own that is written after everything else and
// before the actions, e.g. the config it now has.
type Record struct {
	Path string
	Body []byte
	Mode uint32
}

// Input is what planning needs.
type Input struct {
	Current, Desired mcfgv1.MachineConfigSpec
	// Actions are done at the end, in order; a drain is not the host's business.
	Actions []disruption.Action
	Records []Record
	Facts   Facts
	// Live is what the host has at each of Touches, Blobs its files' contents.
	Live  map[Ref]State
	Blobs Blobs
	// Force looks at every item of the desired config, not only at changed ones.
	Force bool
}

// Refusal is an item that this host cannot have, with the reason.
type Refusal struct {
	Kind   string `json:"kind"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

// Planned is the way from one config to the other. With Refused there are no Steps.
type Planned struct {
	Steps []Step
	// Blobs has the contents of every After and Before.
	Blobs   Blobs
	Refused []Refusal
	// Reboot tells that the steps end with a reboot, asked for or needed.
	Reboot bool
}

// Touches returns what has to be looked at before Plan, sorted and without repeats.
// It fails only if a config cannot be read.
func Touches(in Input) ([]Ref, error) {
	w, err := read2(in)
	if err != nil {
		return nil, err
	}
	refs := map[Ref]bool{}
	for _, it := range w.touched() {
		refs[it.Ref] = true
		if it.Kind == KindFile && preserved(it) {
			refs[Ref{KindFile, originalOf(it.Key)}] = true
			refs[Ref{KindFile, noOriginalOf(it.Key)}] = true
		}
		if it.unit != "" {
			refs[Ref{KindUnit, it.unit}] = true
		}
	}
	for _, r := range in.Records {
		refs[Ref{KindFile, r.Path}] = true
	}
	for _, k := range []Kind{KindKernelArguments, KindImage, KindKernelType, KindExtensions} {
		refs[Ref{Kind: k}] = true
	}
	return slices.SortedFunc(maps.Keys(refs), compareRefs), nil
}

func compareRefs(a, b Ref) int {
	if a.Kind != b.Kind {
		return strings.Compare(string(a.Kind), string(b.Kind))
	}
	return strings.Compare(a.Key, b.Key)
}

// Plan returns the steps. Whatever the host already has needs none. It fails only
// if a config cannot be read.
func Plan(in Input) (Planned, error) {
	w, err := read2(in)
	if err != nil {
		return Planned{}, err
	}
	p := planner{in: &in, now: maps.Clone(in.Live), blobs: Blobs{}, ours: map[Ref]bool{}}
	for _, it := range w.was.all() {
		p.ours[it.Ref] = true
	}
	if p.now == nil {
		p.now = map[Ref]State{}
	}
	p.refuse(w)
	if len(p.refused) > 0 {
		return Planned{Refused: p.refused}, nil
	}
	p.disableRewritten(w)
	for _, it := range slices.Concat(w.wanted.files, w.wanted.units) {
		if w.due(it) {
			p.write(it)
		}
	}
	p.removeStale(w)
	for _, it := range w.wanted.enables {
		if w.due(it) || p.wasDisabled[it.Key] {
			p.enable(it)
		}
	}
	if w.passwd || w.force {
		for _, it := range w.wanted.users {
			p.set(it.Ref, it.want, it.body, it.label())
		}
		p.lockPasswords(w)
	}
	p.system()
	for _, r := range in.Records {
		want := State{Type: File, Mode: r.Mode, Digest: Digest(r.Body)}
		p.set(Ref{KindFile, r.Path}, want, r.Body, "record")
	}
	p.actions()
	return Planned{Steps: p.steps, Blobs: p.blobs, Reboot: p.reboot}, nil
}

// way is both configs as items.
type way struct {
	was, wanted contents
	old, new    ignition.Config
	changed     map[string]bool // kind/key of changed items
	passwd      bool            // something about users changed
	force       bool
}

func read2(in Input) (*way, error) {
	d, err := diff.Compute(in.Current, in.Desired)
	if err != nil {
		return nil, err
	}
	w := &way{changed: map[string]bool{}, force: in.Force}
	if w.old, err = read(&in.Current); err != nil {
		return nil, fmt.Errorf("read current config: %w", err)
	}
	if w.new, err = read(&in.Desired); err != nil {
		return nil, fmt.Errorf("read desired config: %w", err)
	}
	w.was, w.wanted = itemsOf(&w.old, &in.Facts), itemsOf(&w.new, &in.Facts)
	for _, c := range d.Changes {
		w.changed[c.Kind+"/"+c.Key] = true
		w.passwd = w.passwd || c.Kind == render.KindUser || c.Kind == render.KindSSHKey || c.Kind == diff.KindPasswordHash
	}
	return w, nil
}

// due tells whether an item of the desired config is looked at.
func (w *way) due(it item) bool {
	if it.kind == render.KindFile && it.key == kubeletCA {
		return false
	}
	return w.force || w.changed[it.kind+"/"+it.key]
}

// stale are the files, units and drop-ins that only the old config has.
func (w *way) stale() []item {
	kept := map[Ref]bool{}
	for _, it := range w.wanted.all() {
		kept[it.Ref] = true
	}
	var out []item
	for _, it := range slices.Concat(w.was.files, w.was.units, w.was.enables) {
		if !kept[it.Ref] && !keptForever(it.key) && it.want.Type != Absent {
			out = append(out, it)
		}
	}
	return out
}

// keptForever are files that stay when no config names them any more.
func keptForever(p string) bool {
	return p == kubeletCA || p == cloudCA || p == userCA || strings.HasPrefix(p, registryCA)
}

func (w *way) touched() []item {
	out := w.stale()
	for _, it := range w.wanted.all() {
		if w.due(it) || it.kind == render.KindUser || it.kind == diff.KindPasswordHash {
			out = append(out, it)
		}
	}
	for _, it := range w.was.users {
		out = append(out, item{Ref: it.Ref, kind: it.kind, key: it.key, unwant: true})
	}
	return out
}

// planner lays steps one after the other, each starting where the last one ended.
type planner struct {
	in          *Input
	now         map[Ref]State
	steps       []Step
	blobs       Blobs
	refused     []Refusal
	wasDisabled map[string]bool
	ours        map[Ref]bool // what the current config wrote is no original
	reboot      bool
}

// set plans a step if the host does not have want already.
func (p *planner) set(ref Ref, want State, body []byte, cause string) {
	before, ok := p.now[ref]
	if !ok || before.Type == "" {
		before = State{Type: Absent}
	}
	if same(before, want) {
		return
	}
	if want.Digest != "" {
		p.blobs[want.Digest] = body
	}
	if before.Digest != "" {
		if b, ok := p.in.Blobs[before.Digest]; ok {
			p.blobs[before.Digest] = b
		}
	}
	p.steps = append(p.steps, Step{ID: len(p.steps) + 1, Ref: ref, Before: before, After: want, Cause: cause})
	p.now[ref] = want
}

// same tells that a host which has a needs nothing to have b. Labels are the host's.
func same(a, b State) bool {
	a.Label, b.Label = "", ""
	if a.Type == Value && b.Type == Value && (a.Digest != "" || b.Digest != "") {
		return a.Digest == b.Digest
	}
	if a.Type == List && b.Type == List {
		return slices.Equal(a.Values, b.Values)
	}
	return reflect.DeepEqual(a, b)
}

// preserved tells whether what was at a path before is kept.
func preserved(it item) bool {
	return it.kind == render.KindFile || it.kind == render.KindUnit || it.kind == render.KindDropin
}

func originalOf(p string) string   { return path.Join(OriginalDir, p) + ".mcdorig" }
func noOriginalOf(p string) string { return path.Join(NoOriginalDir, p) + ".mcdnoorig" }

// write plans one file or link of the desired config. What was there before the
// first config that named the path is kept; upstream keeps only what a package owns.
func (p *planner) write(it item) {
	if it.want.Type != Absent && preserved(it) {
		p.preserve(it)
	}
	p.set(it.Ref, it.want, it.body, it.label())
}

func (p *planner) preserve(it item) {
	orig, none := Ref{KindFile, originalOf(it.Key)}, Ref{KindFile, noOriginalOf(it.Key)}
	if exists(p.now[orig]) || exists(p.now[none]) || p.ours[it.Ref] {
		return
	}
	live := p.now[it.Ref]
	switch live.Type {
	case File, Link:
		p.set(orig, live, p.in.Blobs[live.Digest], "original of "+it.Key)
	default:
		p.set(none, State{Type: File, Mode: 0o644, Digest: Digest(nil)}, []byte{}, "mark that nothing was at "+it.Key)
	}
}

func exists(s State) bool { return s.Type != "" && s.Type != Absent }

// disableRewritten takes the links of enabled units away before their [Install]
// section changes.
func (p *planner) disableRewritten(w *way) {
	p.wasDisabled = map[string]bool{}
	for _, it := range w.wanted.units {
		ref := Ref{KindUnit, it.unit}
		live := p.now[ref]
		if it.kind != render.KindUnit || !w.due(it) || live.Value != "enabled" || same(p.now[it.Ref], it.want) {
			continue
		}
		p.set(ref, State{Type: Links}, nil, it.label())
		p.wasDisabled[it.unit] = true
	}
}

func (p *planner) enable(it item) {
	live := p.now[it.Ref]
	if live.Type == Links && len(live.Values) > 0 && live.Value == it.want.Value {
		return
	}
	if it.want.Value == "disabled" && live.Value == "disabled" {
		return
	}
	p.set(it.Ref, it.want, nil, it.label())
}

// removeStale takes away what only the old config had, or brings back what was
// there before it.
func (p *planner) removeStale(w *way) {
	for _, it := range w.stale() {
		if it.Kind == KindUnit {
			p.unlinkStale(it, w)
			continue
		}
		orig, none := Ref{KindFile, originalOf(it.Key)}, Ref{KindFile, noOriginalOf(it.Key)}
		if o := p.now[orig]; o.Type == File || o.Type == Link {
			p.set(it.Ref, o, p.in.Blobs[o.Digest], "original of "+it.Key)
		} else {
			p.set(it.Ref, State{Type: Absent}, nil, it.label())
		}
		for _, stamp := range []Ref{orig, none} {
			if exists(p.now[stamp]) {
				p.set(stamp, State{Type: Absent}, nil, "original of "+it.Key)
			}
		}
	}
}

// unlinkStale disables a unit whose file goes, and gives one that stays back to
// the host's presets.
func (p *planner) unlinkStale(it item, w *way) {
	for _, u := range w.was.units {
		if u.kind == render.KindUnit && u.unit == it.Key && u.want.Type == File && !exists(p.now[Ref{KindFile, originalOf(u.Ref.Key)}]) {
			p.set(it.Ref, State{Type: Links}, nil, it.label())
			return
		}
	}
	p.set(it.Ref, State{Type: Value, Value: "preset"}, nil, it.label())
}

// lockPasswords closes accounts that the desired config no longer names, and takes
// their keys away. Upstream leaves an empty password.
func (p *planner) lockPasswords(w *way) {
	kept := map[Ref]bool{}
	for _, it := range w.wanted.users {
		kept[it.Ref] = true
	}
	for _, it := range w.was.users {
		if kept[it.Ref] {
			continue
		}
		it.setBody([]byte("*"))
		if it.Kind == KindFile {
			it.setBody([]byte{})
		}
		p.set(it.Ref, it.want, it.body, it.label())
	}
}

// system plans OS image, kernel arguments, kernel type and extensions.
func (p *planner) system() {
	before := len(p.steps)
	cur, des, f := &p.in.Current, &p.in.Desired, &p.in.Facts
	if f.Image != NoBackend && des.OSImageURL != "" && (p.in.Force || cur.OSImageURL != des.OSImageURL || f.Booted != des.OSImageURL) {
		p.setSystem(KindImage, State{Type: Value, Value: f.Booted}, State{Type: Value, Value: des.OSImageURL})
	}
	if f.Kernel != NoBackend {
		p.kernelArguments(diff.Arguments(cur.KernelArguments), diff.Arguments(des.KernelArguments))
	}
	if f.EnterpriseLinux {
		p.setSystem(KindKernelType, State{Type: Value, Value: kernelType(cur.KernelType)}, State{Type: Value, Value: kernelType(des.KernelType)})
		p.setSystem(KindExtensions, State{Type: List, Values: sorted(cur.Extensions)}, State{Type: List, Values: sorted(des.Extensions)})
	}
	p.reboot = len(p.steps) > before
}

// setSystem plans a word or list of the system. was stands in where the host could
// not be asked.
func (p *planner) setSystem(k Kind, was, want State) {
	ref := Ref{Kind: k}
	if live, ok := p.now[ref]; !ok || live.Type == "" || live.Type == Absent {
		p.now[ref] = was
	}
	p.set(ref, want, nil, string(k))
}

// kernelArguments plans a step when the configs differ, or when the host has lost
// an argument that the desired config needs.
func (p *planner) kernelArguments(cur, des []string) {
	ref := Ref{Kind: KindKernelArguments}
	live := p.now[ref]
	lost := live.Type == List && len(missing(des, live.Values)) > 0
	if slices.Equal(cur, des) && !lost {
		return
	}
	p.steps = append(p.steps, Step{
		ID: len(p.steps) + 1, Ref: ref, Cause: "kernelArguments",
		Before: State{Type: List, Values: cur}, After: State{Type: List, Values: des},
	})
}

// missing returns what of want is not in have.
func missing(want, have []string) []string {
	var out []string
	for _, a := range want {
		if !slices.Contains(have, a) {
			out = append(out, a)
		}
	}
	return out
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

// kernelType reads everything but the two special kernels as the default one.
func kernelType(s string) string {
	if s == "realtime" || s == "64k-pages" {
		return s
	}
	return "default"
}

// actions plans what is done when everything is in place.
func (p *planner) actions() {
	needed := p.reboot
	effect := func(k Kind, key string, before State) {
		p.steps = append(p.steps, Step{ID: len(p.steps) + 1, Ref: Ref{k, key}, Before: before, Cause: "action"})
	}
	p.reboot = needed || slices.ContainsFunc(p.in.Actions, func(a disruption.Action) bool { return a.Kind == disruption.Reboot })
	if p.reboot {
		effect(KindReboot, "", State{Type: Value, Value: p.in.Facts.BootID})
		return
	}
	for _, a := range p.in.Actions {
		switch a.Kind {
		case disruption.DaemonReload:
			effect(KindDaemonReload, "", State{})
		case disruption.Reload:
			effect(KindReload, a.Service, State{})
		case disruption.Restart:
			if a.Service == trustService {
				effect(KindTrust, "", State{})
				continue
			}
			effect(KindRestart, a.Service, State{})
		case disruption.None, disruption.Drain, disruption.Reboot:
		}
	}
}

// trustService rebuilds the CA bundle of CoreOS hosts.
const trustService = "coreos-update-ca-trust.service"
