package admission_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/admission"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/webhook"
)

func risk(rule string) string {
	return " (to accept the risk, annotate the object with millwright.io/accept-risk: " + rule + ")"
}

func told(resp *admissionv1.AdmissionResponse) string {
	if resp.Allowed {
		return ""
	}
	return resp.Result.Message
}

// Rules about providerSpecs mean the same for a Machine and for a template.
func TestProviderSpecsAreJudgedInMachinesAndTemplates(t *testing.T) {
	for _, row := range []struct {
		name     string
		value    *runtime.RawExtension
		mutating string // refusal of the mutating side
		denied   string // refusal of the validating side
		warnings []string
	}{
		{name: "sound", value: value()},
		{name: "another cloud's kind", value: value(with("kind", "AWSMachineProviderConfig")),
			denied: `providerSpec.value.kind: Invalid value: "AWSMachineProviderConfig": must be AzureMachineProviderSpec (apiVersion machine.openshift.io/v1beta1)` + risk("provider-kind")},
		{name: "another group", value: value(with("apiVersion", "x.io/v1")),
			warnings: []string{"incorrect GroupVersionKind for AzureMachineProviderSpec object: x.io/v1, Kind=AzureMachineProviderSpec"}},
		{name: "typo in the location", value: value(with("location", "francecentrl")),
			denied: `providerSpec.location: Invalid value: "francecentrl": no such region for this subscription, did you mean "francecentral"?` + risk("azure-region")},
		{name: "no such size", value: value(with("vmSize", "Standard_D4s_v9")),
			denied: `providerSpec.vmSize: Invalid value: "Standard_D4s_v9": not sold in francecentral; sizes near it: Standard_D4s_v3 (zones 1, 2, 3), Standard_D8s_v3 (zones 1, 3)` + risk("azure-size")},
		{name: "no such zone", value: value(with("zone", "7")),
			denied: `providerSpec.zone: Invalid value: "7": region francecentral has the zones 1, 2, 3` + risk("azure-zone")},
		{name: "size not in this zone", value: value(with("vmSize", "Standard_D8s_v3"), with("zone", "2")),
			denied: `providerSpec.vmSize: Invalid value: "Standard_D8s_v3": not sold in zone 2 of francecentral, but in the zones 1, 3; sizes near it in zone 2: Standard_D4s_v3 (zones 1, 2, 3)` + risk("azure-size-zone")},
		{name: "two of the original's rules", value: value(with("osDisk", map[string]any{"diskSizeGB": 0, "cachingType": "X"})),
			denied: `[providerSpec.osDisk.diskSizeGB: Invalid value: 0: diskSizeGB must be greater than zero and less than 32768, ` +
				`providerSpec.osDisk.cachingType: Invalid value: "X": osDisk.cachingType can be only None, ReadOnly, ReadWrite or omitted]`},
		{name: "no value", mutating: "providerSpec.value: Required value: a value must be provided", denied: "providerSpec.value: Required value: a value must be provided"},
		{name: "a near miss", value: value(with("vmSiz", "x")),
			mutating: `providerSpec.value: Unsupported value: "vmSiz": unknown field, did you mean "vmSize"?` + risk("unknown-field-near-miss"),
			denied:   `providerSpec.value: Unsupported value: "vmSiz": unknown field, did you mean "vmSize"?` + risk("unknown-field-near-miss")},
		{name: "an unknown field", value: value(with("fooBarBaz", "x")),
			warnings: []string{`providerSpec.value: Unsupported value: "fooBarBaz": Unknown field (fooBarBaz) will be ignored`}},
		{name: "no credentials", value: value(with("credentialsSecret", map[string]any{"name": "nope", "namespace": wire.Namespace})),
			warnings: []string{`providerSpec.credentialsSecret: Invalid value: "nope": not found. Expected CredentialsSecret to exist`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDoor(t, &shop{}, nil)
			for kind, obj := range map[string]any{"machine": machine("m", row.value), "machineset": machineSet("w", row.value)} {
				mutated := d.knock("/mutate-machine-openshift-io-v1beta1-"+kind, obj, nil)
				if diff := cmp.Diff(row.mutating, told(mutated)); diff != "" {
					t.Errorf("mutating %s (-want +got):\n%s", kind, diff)
				}
				resp := d.knock("/validate-machine-openshift-io-v1beta1-"+kind, obj, nil)
				if diff := cmp.Diff(row.denied, told(resp)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
				if diff := cmp.Diff(row.warnings, resp.Warnings); diff != "" {
					t.Errorf("warnings about %s (-want +got):\n%s", kind, diff)
				}
				if row.denied != "" && (resp.Result.Code != 403 || resp.Result.Reason != metav1.StatusReasonForbidden) {
					t.Errorf("refusal of %s is %d %s, want 403 Forbidden", kind, resp.Result.Code, resp.Result.Reason)
				}
			}
		})
	}
}

func TestUnreadableSpecNamesTheField(t *testing.T) {
	d := newDoor(t, &shop{}, nil)
	bad := machine("m", value(with("osDisk", map[string]any{"diskSizeGB": "128"})))
	for _, path := range []string{admission.PathMutateMachine, admission.PathValidateMachine} {
		got := told(d.knock(path, bad, nil))
		const want = "json: cannot unmarshal string into Go struct field OSDisk.osDisk.diskSizeGB of type int32"
		if !strings.HasPrefix(got, `providerSpec.value: Invalid value: {`) || !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %s, want it to end with %s", path, got, want)
		}
	}
}

func TestRulesOfMachineSets(t *testing.T) {
	long := strings.Repeat("a", 58)
	first := machineSet("demo-w-z1", value())
	twin := machineSet("demo-w-z2", value())
	twin.Spec.Selector, twin.Spec.Template.Labels = first.Spec.Selector, first.Spec.Template.Labels
	mismatch := machineSet("w", value())
	mismatch.Spec.Template.Labels = map[string]string{wire.LabelMachineSet: "x"}
	greedy := machineSet("w", value())
	greedy.Spec.Selector.MatchLabels = map[string]string{"team": "a"}
	greedy.Spec.Template.Labels = map[string]string{"team": "a", wire.LabelMachineSet: "demo-w-z1"}
	empty := machineSet("w", value())
	empty.Spec.Selector = metav1.LabelSelector{}
	syntax := machineSet("w", value())
	syntax.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
	other := machineSet("demo-w-z1", value())
	other.Spec.Selector.MatchLabels = map[string]string{wire.LabelMachineSet: "new"}
	other.Spec.Template.Labels = other.Spec.Selector.MatchLabels
	for _, row := range []struct {
		name     string
		now, old *machinev1.MachineSet
		want     string
	}{
		{name: "selector does not match template", now: mismatch,
			want: "spec.template.metadata.labels: Invalid value: {\"machine.openshift.io/cluster-api-machineset\":\"x\"}: `selector` does not match template `labels`"},
		{name: "copied without its label", now: twin, want: `spec.template.metadata.labels: Invalid value: {"machine.openshift.io/cluster-api-machineset":"demo-w-z1"}: ` +
			`MachineSet "demo-w-z2" would make Machines that the selector of MachineSet "demo-w-z1" selects: ` +
			`set machine.openshift.io/cluster-api-machineset to a value of its own, e.g. "demo-w-z2", in spec.selector.matchLabels and in spec.template.metadata.labels` + risk("machineset-overlap")},
		{name: "makes Machines for another", now: greedy, want: `spec.template.metadata.labels: Invalid value: {"machine.openshift.io/cluster-api-machineset":"demo-w-z1","team":"a"}: ` +
			`MachineSet "w" would make Machines that the selector of MachineSet "demo-w-z1" selects: ` +
			`give "w" a label that "demo-w-z1" does not have, in spec.selector.matchLabels and in spec.template.metadata.labels` + risk("machineset-overlap")},
		{name: "itself is no rival", now: first},
		{name: "empty selector", now: empty, want: `spec.selector: Invalid value: {}: empty selector is not valid for MachineSet.` + risk("machineset-selector-empty")},
		{name: "selector syntax", now: syntax, want: `spec.selector: Invalid value: {"matchLabels":{"machine.openshift.io/cluster-api-machineset":"w"},"matchExpressions":[{"key":"a","operator":"Near"}]}: ` +
			`could not convert label selector to selector: "Near" is not a valid label selector operator`},
		{name: "selector changed", now: other, old: first, want: "spec.selector: Forbidden: selector is immutable"},
		{name: "name too long", now: machineSet(long, value()), want: `metadata.name: Invalid value: "` + long + `": has 58 characters, must have at most 57: ` +
			`its Machines are called <name>-xxxxx, and the name of a Machine, of its VM and of its Node has at most 63` + risk("machineset-name-length")},
		{name: "longest name", now: machineSet(long[:57], value())},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDoor(t, &shop{}, nil, first.DeepCopy())
			var old any
			if row.old != nil {
				old = row.old
			}
			if diff := cmp.Diff(row.want, told(d.knock(admission.PathValidateMachineSet, row.now, old))); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASetThatWouldSelectAnothersMachinesIsRefused(t *testing.T) {
	first := machineSet("first", value())
	first.Spec.Template.Labels = map[string]string{wire.LabelMachineSet: "first", "team": "a"}
	d := newDoor(t, &shop{}, nil, first)
	s := machineSet("second", value())
	s.Spec.Selector.MatchLabels = map[string]string{"team": "a"}
	s.Spec.Template.Labels = map[string]string{"team": "a"}
	want := `spec.selector: Invalid value: {"matchLabels":{"team":"a"}}: MachineSet "second" would select the Machines that MachineSet "first" makes: ` +
		`give "second" a label that "first" does not have, in spec.selector.matchLabels and in spec.template.metadata.labels` + risk("machineset-overlap")
	if diff := cmp.Diff(want, told(d.knock(admission.PathValidateMachineSet, s, nil))); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

func TestHooksOfADeletingMachine(t *testing.T) {
	hooks := func(pre, term []machinev1.LifecycleHook) *machinev1.Machine {
		m := deleting(machine("m", value()))
		m.Spec.LifecycleHooks = machinev1.LifecycleHooks{PreDrain: pre, PreTerminate: term}
		return m
	}
	a, b := machinev1.LifecycleHook{Name: "a/x", Owner: "o"}, machinev1.LifecycleHook{Name: "b/x", Owner: "o"}
	d := newDoor(t, &shop{}, nil)
	old := hooks([]machinev1.LifecycleHook{a}, []machinev1.LifecycleHook{a})
	want := "[spec.lifecycleHooks.preDrain: Forbidden: pre-drain hooks are immutable when machine is marked for deletion: the following hooks are new or changed: [{Name:b/x Owner:o}], " +
		"spec.lifecycleHooks.preTerminate: Forbidden: pre-terminate hooks are immutable when machine is marked for deletion: the following hooks are new or changed: [{Name:a/x Owner:p}]]"
	changed := hooks([]machinev1.LifecycleHook{a, b}, []machinev1.LifecycleHook{{Name: "a/x", Owner: "p"}})
	if diff := cmp.Diff(want, told(d.knock(admission.PathValidateMachine, changed, old))); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if got := told(d.knock(admission.PathValidateMachine, hooks(nil, nil), old)); got != "" {
		t.Errorf("taking hooks away: got %s, want it admitted", got)
	}
	living := machine("m", value())
	living.Spec.LifecycleHooks.PreDrain = []machinev1.LifecycleHook{a}
	if got := told(d.knock(admission.PathValidateMachine, living, machine("m", value()))); got != "" {
		t.Errorf("a hook on a living Machine: got %s, want it admitted", got)
	}
}

// Whatever was wrong before a change must not keep the change out.
func TestAnObjectNoWorseThanItWasIsAdmitted(t *testing.T) {
	d := newDoor(t, &shop{}, nil)
	sick := value(with("osDisk", map[string]any{"diskSizeGB": 0}), with("vmSize", "Standard_Gone"))
	old := deleting(machine("m", sick))
	bare := old.DeepCopy()
	bare.Finalizers = nil
	if resp := d.knock(admission.PathValidateMachine, bare, old); !resp.Allowed || len(resp.Warnings) > 0 {
		t.Errorf("a finalizer that goes: got %+v, want it admitted in silence", resp)
	}
	labelled := old.DeepCopy()
	labelled.Labels["x"] = "y"
	resp := d.knock(admission.PathValidateMachine, labelled, old)
	want := []string{"providerSpec.osDisk.diskSizeGB: Invalid value: 0: diskSizeGB must be greater than zero and less than 32768"}
	if diff := cmp.Diff(want, resp.Warnings); diff != "" || !resp.Allowed {
		t.Errorf("a label: allowed %v, warnings (-want +got):\n%s", resp.Allowed, diff)
	}
	worse := old.DeepCopy()
	worse.Spec.ProviderSpec.Value = value(with("osDisk", map[string]any{"diskSizeGB": 0, "cachingType": "X"}))
	wantRefusal := `providerSpec.osDisk.cachingType: Invalid value: "X": osDisk.cachingType can be only None, ReadOnly, ReadWrite or omitted`
	if diff := cmp.Diff(wantRefusal, told(d.knock(admission.PathValidateMachine, worse, old))); diff != "" {
		t.Errorf("what is new and wrong (-want +got):\n%s", diff)
	}
	broken := machineSet("w", value())
	broken.Spec.Template.Labels = nil
	scaled := broken.DeepCopy()
	*scaled.Spec.Replicas = 0
	if got := told(d.knock(admission.PathValidateMachineSet, scaled, broken)); got != "" {
		t.Errorf("scaling a set that never worked: got %s, want it admitted", got)
	}
}

func TestModesAndAcceptedRisks(t *testing.T) {
	const text = `providerSpec.zone: Invalid value: "7": region francecentral has the zones 1, 2, 3`
	bad := machine("m", value(with("zone", "7")))
	accepted := bad.DeepCopy()
	accepted.Annotations = map[string]string{webhook.AnnotationAcceptRisk: "azure-size, azure-zone"}
	for _, row := range []struct {
		name     string
		settings []string
		now      *machinev1.Machine
		denied   string
		warnings []string
	}{
		{name: "enforced", now: bad, denied: text + risk("azure-zone")},
		{name: "warned of", settings: []string{"azure-zone=warn"}, now: bad, warnings: []string{text}},
		{name: "off", settings: []string{"azure-zone=off"}, now: bad},
		{name: "accepted", now: accepted, warnings: []string{text + " (accepted by annotation millwright.io/accept-risk: azure-zone)"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			resp := newDoor(t, &shop{}, row.settings).knock(admission.PathValidateMachine, row.now, nil)
			if diff := cmp.Diff(row.denied, told(resp)); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.warnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMachinesInheritWhatTheirSetWasAdmittedWith(t *testing.T) {
	set := machineSet("w", value(with("osDisk", map[string]any{"diskSizeGB": 0})))
	set.Annotations = map[string]string{webhook.AnnotationAcceptRisk: "azure-disk-size"}
	d := newDoor(t, &shop{}, nil, set)
	m := controlled(machine("w-abcde", value(with("osDisk", map[string]any{"diskSizeGB": 0}), with("vmSize", "Standard_Gone"))), "w")
	resp := d.knock(admission.PathValidateMachine, m, nil)
	if got := told(resp); got != "" || len(resp.Warnings) != 2 {
		t.Errorf("got %q with warnings %q, want it admitted with two", got, resp.Warnings)
	}
	m.OwnerReferences = nil
	if told(d.knock(admission.PathValidateMachine, m, nil)) == "" {
		t.Error("the same Machine of nobody was admitted")
	}
}

func TestACloudThatHangsIsNotWaitedForLong(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	cl := &shop{regions: func(ctx context.Context) ([]string, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, context.DeadlineExceeded
	}}
	d := newDoor(t, cl, nil)
	bad := machine("m", value(with("location", "nowhere")))
	want := []string{"providerSpec: location, zone and size were not compared with what the cloud sells: no answer within 1s"}
	start := time.Now()
	for range 20 {
		resp := d.knock(admission.PathValidateMachine, bad, nil)
		if diff := cmp.Diff(want, resp.Warnings); diff != "" || !resp.Allowed {
			t.Fatalf("allowed %v, warnings (-want +got):\n%s", resp.Allowed, diff)
		}
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("twenty reviews took %s, want the wait only once", took)
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	bare := &runtime.RawExtension{Raw: []byte(`{"kind":"AzureMachineProviderSpec","apiVersion":"machine.openshift.io/v1beta1","location":"francecentral","zone":1,"osDisk":{"diskSizeGB":128},"fooBarBaz":1}`)}
	m := machine("m", bare)
	m.Labels = nil
	resp := newDoor(t, &shop{}, nil).knock(admission.PathMutateMachine, m, nil)
	if !resp.Allowed {
		t.Fatalf("refused: %s", resp.Result.Message)
	}
	var patch []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(resp.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, p := range patch {
		got[p.Op+" "+strings.TrimPrefix(p.Path, "/spec/providerSpec/value")] = p.Value
	}
	for key, want := range map[string]any{
		"add /metadata/labels":   map[string]any{wire.LabelCluster: infraID},
		"add /vmSize":            "Standard_D4s_V3",
		"add /vnet":              infraID + "-vnet",
		"add /subnet":            infraID + "-worker-subnet",
		"add /userDataSecret":    map[string]any{"name": "worker-user-data"},
		"add /credentialsSecret": map[string]any{"name": "azure-cloud-credentials", "namespace": "openshift-machine-api"},
		"add /publicIP":          false,
		"replace /zone":          "1",
		"remove /fooBarBaz":      nil,
	} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if !slices.Contains(resp.Warnings, `providerSpec.value: Unsupported value: "fooBarBaz": Unknown field (fooBarBaz) will be ignored`) {
		t.Errorf("warnings are %q, want one about fooBarBaz", resp.Warnings)
	}
}

func TestLabelsThatAreThereStay(t *testing.T) {
	d := newDoor(t, &shop{}, nil)
	m := machine("m", value())
	m.Labels[wire.LabelCluster] = "other"
	if p := string(d.knock(admission.PathMutateMachine, m, nil).Patch); strings.Contains(p, "labels") {
		t.Errorf("patch is %s, want no label in it", p)
	}
	if p := string(d.knock(admission.PathMutateMachineSet, machineSet("w", value()), nil).Patch); strings.Contains(p, wire.LabelCluster) {
		t.Errorf("patch of a set is %s, want no cluster label in it", p)
	}
	foreign := machine("m", value(with("kind", "AWSMachineProviderConfig"), with("ami", "x")))
	if resp := d.knock(admission.PathMutateMachine, foreign, nil); !resp.Allowed || len(resp.Patch) > 0 {
		t.Errorf("another cloud's spec: got %s %s, want it untouched", resp.Result.Message, resp.Patch)
	}
	if resp := d.knock(admission.PathMutateMachine, machine("m", value(without("vnet"), without("subnet"))), machine("m", value())); len(resp.Patch) > 0 {
		t.Errorf("an update got the patch %s, want none", resp.Patch)
	}
}

func TestPlatformWithoutCodecHasGeneralRulesOnly(t *testing.T) {
	api := newDoor(t, &shop{}, nil).api
	r := admission.New(admission.Deps{Client: api, Live: api, Clock: clock.RealClock{}})
	req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: wire.Namespace, Object: runtime.RawExtension{Raw: encode(t, machineSet(strings.Repeat("b", 60), nil))}}
	v, err := r.Reviews()[admission.PathValidateMachineSet](t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Problems) != 1 || v.Problems[0].Rule != admission.RuleNameLength {
		t.Errorf("got %v, want the name alone", v.Problems)
	}
}

func TestRulesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range admission.Rules(spec.Codec{}) {
		if r.ID == "" || seen[r.ID] {
			t.Errorf("rule %q is listed twice or has no name", r.ID)
		}
		seen[r.ID] = true
	}
}

// FuzzReview sends any bytes to every review: none may panic, and what the
// mutating side returns must be JSON.
func FuzzReview(f *testing.F) {
	f.Add([]byte(`{}`), []byte(`null`))
	f.Add([]byte(`{"metadata":{"labels":[]},"spec":{"providerSpec":{"value":{"kind":1}}}}`), []byte(`{"spec":{}}`))
	f.Add([]byte(`{"spec":{"template":{"spec":{"providerSpec":"x"}}}}`), []byte(`{"spec":{"template":{"spec":{"providerSpec":{"value":null}}}}}`))
	f.Add(encode(f, machine("m", value())), encode(f, machineSet("w", value())))
	scheme := newScheme(f)
	reviewer := admission.New(admission.Deps{Client: quiet{scheme}, Live: quiet{scheme}, Codec: spec.Codec{}, Clock: clock.RealClock{}})
	f.Fuzz(func(t *testing.T, now, old []byte) {
		for path, review := range reviewer.Reviews() {
			for _, op := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
				v, err := review(t.Context(), &admissionv1.AdmissionRequest{Operation: op, Object: runtime.RawExtension{Raw: now}, OldObject: runtime.RawExtension{Raw: old}})
				if err == nil && v.Patched != nil && !json.Valid(v.Patched) {
					t.Errorf("%s %s: patched object is no JSON: %s", op, path, v.Patched)
				}
			}
		}
	})
}

var _ cloud.Catalog = (*shop)(nil)
var _ client.Reader = quiet{}
