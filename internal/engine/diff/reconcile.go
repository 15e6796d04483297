package diff

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// Named is a config with the name its refusals mention.
type Named struct {
	Name string
	Spec mcfgv1.MachineConfigSpec
}

// Overrides lifts refusals: MachineConfiguration/cluster may allow changes of
// disks, filesystems and RAID.
type Overrides struct{ Disks, Filesystems, Raid bool }

// OverridesOf reads what a MachineConfiguration allows.
func OverridesOf(v operatorv1.IrreconcilableValidationOverrides) Overrides {
	return Overrides{
		Disks:       slices.Contains(v.Storage, operatorv1.IrreconcilableValidationOverridesStorageDisks),
		Filesystems: slices.Contains(v.Storage, operatorv1.IrreconcilableValidationOverridesStorageFileSystems),
		Raid:        slices.Contains(v.Storage, operatorv1.IrreconcilableValidationOverridesStorageRaid),
	}
}

// Refused returns those of items that are refused in spite of o. The list
// given is not changed.
func (o Overrides) Refused(items []Unreconcilable) []Unreconcilable {
	return slices.DeleteFunc(slices.Clone(items), o.lifts)
}

func (o Overrides) lifts(u Unreconcilable) bool {
	switch u.Kind {
	case render.KindDisk:
		return o.Disks
	case render.KindFilesystem:
		return o.Filesystems
	case render.KindRaid:
		return o.Raid
	}
	return false
}

// Refusal says why a node of one config cannot take another. Its text is the
// original's; Items say whose fault it is.
type Refusal struct {
	Items []Unreconcilable // empty if a config could not be read
	wire  string
	cause error
}

// Error has the original's words, its swapped names included.
func (r *Refusal) Error() string { return r.wire }

// Unwrap returns the *ignition.Error of a config that could not be read.
func (r *Refusal) Unwrap() error { return r.cause }

// Reason is the part of the text that names no config.
func (r *Refusal) Reason() string {
	if len(r.Items) > 0 {
		return r.Items[0].Reason
	}
	return r.wire
}

// Reconcile returns a *Refusal if a node that runs current cannot take desired,
// else nil. An absent Ignition config is refused, as it is by the original.
func Reconcile(current, desired Named, o Overrides) error {
	before, err := readStrictly("old", current)
	if err != nil {
		return err
	}
	after, err := readStrictly("new", desired)
	if err != nil {
		return err
	}
	items := slices.DeleteFunc(refusedSections(before, after), o.lifts)
	if current.Spec.FIPS != desired.Spec.FIPS {
		items = append(items, Unreconcilable{Kind: render.KindFIPS, Reason: reasonFIPS})
	}
	if len(items) == 0 {
		return nil
	}
	return &Refusal{Items: items, wire: fmt.Sprintf("new machineconfig %q is not reconcilable against %q: %s", current.Name, desired.Name, items[0].Reason)}
}

func readStrictly(which string, n Named) (*ignition.Config, error) {
	if len(n.Spec.Config.Raw) == 0 {
		return nil, &Refusal{wire: fmt.Sprintf("parsing %s Ignition config from machineconfig %q failed: "+
			"failed to parse Ignition config: parsing Ignition config spec v3 failed with error: not a config (empty)\nReport: ", which, n.Name)}
	}
	source, err := ignition.ReadMachineConfig(n.Spec.Config.Raw)
	var cfg ignition.Config
	if err == nil {
		cfg, err = source.Config()
	}
	if err != nil {
		words := err.Error()
		if e := (*ignition.Error)(nil); errors.As(err, &e) {
			words = e.Wire
		}
		return nil, &Refusal{cause: err, wire: fmt.Sprintf("parsing %s Ignition config from machineconfig %q failed: failed to parse Ignition config: %s", which, n.Name, words)}
	}
	if bad := source.ModeProblems(); which == "new" && len(bad) > 0 {
		return nil, &Refusal{wire: fmt.Sprintf("validating new Ignition config from machineconfig %q failed: %s", n.Name, bad[0].Detail)}
	}
	return &cfg, nil
}

// Blame words a refusal as the original's render controller does: it looks for
// the first source that is refused for the same reason when it is taken alone.
// sources are in the order they were merged. It returns nil for a nil refusal.
//
// The original often blames the wrong source, or none; Guilty names the right
// ones.
func Blame(refusal error, current Named, sources []Named, o Overrides) error {
	if refusal == nil {
		return nil
	}
	var unreadable []error
	for _, s := range sources {
		err := Reconcile(current, s, o)
		r := (*Refusal)(nil)
		if !errors.As(err, &r) {
			continue
		}
		if len(r.Items) == 0 {
			unreadable = append(unreadable, err)
			continue
		}
		if strings.Contains(refusal.Error(), r.Reason()) {
			return fmt.Errorf("reconciliation failed between current config %q and base config %q: %s", current.Name, s.Name, r.Reason())
		}
	}
	component := "<nil>"
	if joined := errors.Join(unreadable...); joined != nil {
		component = joined.Error()
	}
	return fmt.Errorf("render reconciliation error: %w; component errors: %s", refusal, component)
}

// Guilty returns the names of the fragments that set the items of a refusal, by
// the origins of the rendered config; none if the refusal is about something
// that was taken away.
func Guilty(r *Refusal, origins []render.Origin) []string {
	var out []string
	for _, item := range r.Items {
		for _, o := range origins {
			if o.Kind == item.Kind && (item.Key == "" || o.Key == item.Key) && o.SetBy != "" && !slices.Contains(out, o.SetBy) {
				out = append(out, o.SetBy)
			}
		}
	}
	return out
}
