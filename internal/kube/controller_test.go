package kube_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// broken writes into a map that was never made, when m is nil.
func broken(m map[string]int) { m["x"] = 1 }

func TestStepRecoversFromPanics(t *testing.T) {
	c := kube.Controller{Name: "c", Reconcile: func(context.Context, types.NamespacedName) (reconcile.Result, error) {
		broken(nil)
		return reconcile.Result{}, nil
	}}
	_, err := c.Step(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"})
	if err == nil || !strings.HasPrefix(err.Error(), "reconcile ns/a: panic: assignment to entry in nil map") {
		t.Errorf("got %v", err)
	}
}

func TestSetupNamesWhatIsMissing(t *testing.T) {
	if err := (kube.Controller{Name: "c"}).Setup(nil); err == nil {
		t.Error("a controller without a kind was accepted")
	}
}

type recorded struct {
	events.EventRecorder
	lines []string
}

func (r *recorded) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	r.lines = append(r.lines, strings.Join([]string{kind, reason, action, note, args[0].(string)}, "|"))
}

func TestRecordEventsNeverFormatsMessages(t *testing.T) {
	rec := &recorded{}
	kube.RecordEvents(rec, &corev1.Node{}, []plan.Event{
		{Reason: "Created", Message: "100% done"},
		{Type: plan.Warning, Reason: "FailedCreate", Action: "Create", Message: "x"},
	})
	want := []string{"Normal|Created|Created|%s|100% done", "Warning|FailedCreate|Create|%s|x"}
	if d := cmp.Diff(want, rec.lines); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestLoggedEventsAreInTheLogToo(t *testing.T) {
	rec := &recorded{}
	var out bytes.Buffer
	log := kube.KlogTextTo("", kube.KlogOptions{Out: &out, Clock: clocktesting.NewFakePassiveClock(start)})
	node := &corev1.Node{}
	node.Name, node.UID, node.ResourceVersion = "n", "u", "7"
	kube.RecordEvents(kube.LoggedEvents(rec, log, scheme.Scheme), node, []plan.Event{{Reason: "Moved", Message: "100% done"}})
	if d := cmp.Diff([]string{"Normal|Moved|Moved|%s|100% done"}, rec.lines); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	const want = `Event(v1.ObjectReference{Kind:"Node", Namespace:"", Name:"n", UID:"u", APIVersion:"v1", ResourceVersion:"7", FieldPath:""}): type: 'Normal' reason: 'Moved' 100% done` + "\n"
	if got := out.String(); !strings.HasSuffix(got, "] "+want) {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}

func TestStripNodeDropsImages(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{SizeBytes: 1}}}}
	got, err := kube.StripNode(n)
	if err != nil || len(got.(*corev1.Node).Status.Images) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTypedAsksOnlyAboutItsType(t *testing.T) {
	changed := kube.Typed(func(a, b *corev1.Node) bool { return a.Name != b.Name })
	a, b := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	if changed(a, a.DeepCopy()) || !changed(a, b) {
		t.Error("the function was not asked about its type")
	}
	if !changed(&corev1.Pod{}, &corev1.Pod{}) {
		t.Error("an update of another type is ignored")
	}
}
