package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/memapi"
)

// explainIn explains an object of a cluster that holds these objects.
func explainIn(t *testing.T, what string, objects ...client.Object) Explanation {
	t.Helper()
	scheme, err := readScheme()
	if err != nil {
		t.Fatal(err)
	}
	api := memapi.New(scheme, clocktesting.NewFakePassiveClock(noon), objects...)
	if err := indexFiles(filesOf{api}); err != nil {
		t.Fatal(err)
	}
	kind, name, _ := strings.Cut(what, "/")
	e, key, err := explained(configExplainers(), []string{kind, name}, "")
	if err != nil {
		t.Fatal(err)
	}
	ex, err := e.Explain(t.Context(), ExplainInput{Reader: api, Key: key, Now: noon, Note: func(text string) { t.Error(text) }})
	if err != nil {
		t.Fatal(err)
	}
	ex.Kind, ex.Name = e.Kind, key.Name
	return ex
}

// filesOf is an API that finds objects by fields.
type filesOf struct{ *memapi.API }

func (filesOf) Objects() []client.Object { return nil }

func withPool(change func(*mcfgv1.MachineConfigPool), objects []client.Object) []client.Object {
	change(objects[0].(*mcfgv1.MachineConfigPool))
	return objects
}

// TestExplainNodesPoolsAndConfigs has a golden text for what each state of each kind
// says.
func TestExplainNodesPoolsAndConfigs(t *testing.T) {
	paused := func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Paused = true
		p.Status.Conditions = p.Status.Conditions[1:]
	}
	mine := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-mine", Labels: map[string]string{labelRole: "worker"}}}
	lost := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-lost", Labels: map[string]string{labelRole: "wroker"}}}
	target := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: newConfig}}
	selects := func(merged bool) func(*mcfgv1.MachineConfigPool) {
		return func(p *mcfgv1.MachineConfigPool) {
			p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: mine.Labels}
			if merged {
				p.Spec.Configuration.Source = []corev1.ObjectReference{{Name: mine.Name}}
			}
		}
	}
	drifted := resting("worker-0", newConfig)
	drifted.Annotations[node.State], drifted.Annotations[node.Reason] = node.Degraded, `content mismatch for file "/etc/a"`
	fips := going("worker-0", node.Unreconcilable, node.Reason, "detected change to FIPS flag; refusing to modify FIPS on a running cluster")
	happy := func() []client.Object {
		p := statusPool("worker", poolSays("Updated", 0, "All nodes are updated with MachineConfig "+newConfig))
		p.Status.MachineCount, p.Status.UpdatedMachineCount, p.Status.ReadyMachineCount = 1, 1, 1
		return []client.Object{p, resting("worker-0", newConfig)}
	}
	var b bytes.Buffer
	for _, tt := range []struct {
		what    string
		objects []client.Object
		state   ExplainState
		cause   string
	}{
		{"node/worker-0", happy(), StateFine, ""},
		{"mcp/worker", happy(), StateFine, ""},
		{"node/worker-1", rolling(), StateStuck, "DrainBlocked"},
		{"node/worker-3", rolling(), StateProgressing, ""},
		{"node/worker-4", rolling(), StateProgressing, ""},
		{"node/worker-5", rolling(), StateProgressing, ""},
		{"node/worker-6", rolling(), StateProgressing, ""},
		{"node/worker-6", withPool(paused, rolling()), StateStuck, "Paused"},
		{"node/worker-7", rolling(), StateStuck, "Cordoned"},
		{"node/worker-8", rolling(), StateStuck, "NoAgent"},
		{"node/worker-0", failing(), StateStuck, "Degraded"},
		{"node/worker-0", []client.Object{statusPool("worker"), drifted}, StateStuck, "Degraded"},
		{"node/worker-0", []client.Object{statusPool("worker"), fips}, StateStuck, "Unreconcilable"},
		{"node/both", failing(), StateStuck, "Unassigned"},
		{"mcp/worker", rolling(), StateStuck, "DrainBlocked"},
		{"mcp/worker", failing(), StateStuck, "Stopped"},
		{"mcp/worker", withPool(paused, rolling()), StateStuck, "Paused"},
		{"mc/99-lost", append(happy(), lost), StateStuck, "NotSelected"},
		{"mc/99-mine", append(withPool(selects(false), happy()), mine), StateProgressing, ""},
		{"mc/99-mine", append(withPool(selects(true), happy()), mine), StateFine, ""},
		{"mc/99-mine", append(withPool(selects(true), rolling()), mine), StateStuck, "DrainBlocked"},
		{"mc/" + newConfig, append(failing(), target), StateStuck, "Degraded"},
		{"mc/" + newConfig, append(happy(), target), StateFine, ""},
	} {
		ex := explainIn(t, tt.what, slices.Clone(tt.objects)...)
		if ex.State != tt.state || ex.Cause != tt.cause {
			t.Errorf("%s is %s (%s), want %s (%s): %s", tt.what, ex.State, ex.Cause, tt.state, tt.cause, ex.Why)
		}
		if ex.State == StateStuck && len(ex.Next) == 0 {
			t.Errorf("%s is stuck without a next step: %s", tt.what, ex.Why)
		}
		if err := ex.text(&b, noon); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n----\n\n")
	}
	golden(t, "explain-nodes.txt", b.String())
}
