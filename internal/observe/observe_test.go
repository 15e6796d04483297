package observe_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/observe"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func node(name, id string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
}

func pod(ns, name, on string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.PodSpec{NodeName: on}}
}

func TestNodeByProviderID(t *testing.T) {
	api := memapi.New(clientgoscheme.Scheme, clocktesting.NewFakePassiveClock(start),
		node("a", "azure:///A"), node("b", "azure:///twice"), node("c", "azure:///twice"), node("d", ""))
	if err := kube.AddIndexes(t.Context(), api, observe.NodeIndexes()...); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, why, id, want, wantErr string }{
		{name: "one", why: "byte for byte", id: "azure:///A", want: "a"},
		{name: "other case", why: "byte for byte", id: "azure:///a"},
		{name: "none", why: "an empty ID is nobody's", id: ""},
		{name: "two", why: "nobody can tell which", id: "azure:///twice", wantErr: "2 nodes carry it: b, c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := observe.NodeByProviderID(t.Context(), api, tc.id)
			got := ""
			if n != nil {
				got = n.Name
			}
			if got != tc.want || (err != nil) != (tc.wantErr != "") || err != nil && !strings.HasSuffix(err.Error(), tc.wantErr) {
				t.Errorf("got %q, %v, want %q, %q (%s)", got, err, tc.want, tc.wantErr, tc.why)
			}
		})
	}
}

func TestPodsOnNodeAreOrdered(t *testing.T) {
	api := memapi.New(clientgoscheme.Scheme, clocktesting.NewFakePassiveClock(start),
		pod("z", "a", "n"), pod("a", "z", "n"), pod("a", "b", "n"), pod("a", "c", "other"))
	pods, err := observe.PodsOnNode(t.Context(), api, "n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range pods {
		got = append(got, p.Namespace+"/"+p.Name)
	}
	if d := cmp.Diff([]string{"a/b", "a/z", "z/a"}, got); d != "" {
		t.Errorf("pods (-want +got):\n%s", d)
	}
}

func object(name, uid, version string) client.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func TestOverlayShowsOwnWritesUntilTheCacheDoes(t *testing.T) {
	const owner = types.UID("set")
	old := object("old", "u-old", "5")
	gone := object("old", "u-old", "9")
	gone.SetDeletionTimestamp(&metav1.Time{Time: start})
	for _, tc := range []struct {
		name, why string
		do        func(*observe.Overlay)
		later     time.Duration
		cached    []client.Object
		want      string // names, with - for deleting ones
		again     string // with the same cache, once more
	}{
		{name: "created", why: "the cache lags", do: func(o *observe.Overlay) { o.Created(owner, object("new", "u-new", "7")) },
			cached: []client.Object{old}, want: "old new", again: "old new"},
		{name: "created, seen", why: "no duplicates", do: func(o *observe.Overlay) { o.Created(owner, object("new", "u-new", "7")) },
			cached: []client.Object{old, object("new", "u-new", "8")}, want: "old new", again: "old new"},
		{name: "created, reborn", why: "the name has a new bearer", do: func(o *observe.Overlay) { o.Created(owner, object("new", "u-new", "7")) },
			cached: []client.Object{object("new", "u-newer", "6")}, want: "new", again: "new"},
		{name: "created and gone", why: "a younger sibling proves that the cache is past our write", do: func(o *observe.Overlay) { o.Created(owner, object("new", "u-new", "7")) },
			cached: []client.Object{object("old", "u-old", "8")}, want: "old", again: "old"},
		{name: "created long ago", why: "nothing is remembered for ever", do: func(o *observe.Overlay) { o.Created(owner, object("new", "u-new", "7")) },
			later: 6 * time.Minute, cached: []client.Object{old}, want: "old", again: "old"},
		{name: "deleted", why: "the cache lags", do: func(o *observe.Overlay) { o.Deleted(owner, old) },
			cached: []client.Object{old}, want: "-old", again: "-old"},
		{name: "deleted, seen", why: "the cache knows better", do: func(o *observe.Overlay) { o.Deleted(owner, old) },
			cached: []client.Object{gone}, want: "-old", again: "-old"},
		{name: "created, then deleted", why: "neither is there", do: func(o *observe.Overlay) {
			o.Created(owner, object("new", "u-new", "7"))
			o.Deleted(owner, object("new", "u-new", "7"))
		}, cached: []client.Object{old}, want: "old", again: "old"},
		{name: "somebody else's", why: "owners do not mix", do: func(o *observe.Overlay) { o.Created("other", object("new", "u-new", "7")) },
			cached: []client.Object{old}, want: "old", again: "old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(start)
			o := observe.NewOverlay(clk)
			tc.do(o)
			clk.SetTime(start.Add(tc.later))
			for i, want := range []string{tc.want, tc.again} {
				var got []string
				for _, obj := range o.Apply(owner, tc.cached) {
					n := obj.GetName()
					if obj.GetDeletionTimestamp() != nil {
						n = "-" + n
					}
					got = append(got, n)
				}
				if s := strings.Join(got, " "); s != want {
					t.Errorf("time %d: got %q, want %q (%s)", i+1, s, want, tc.why)
				}
			}
			if old.GetDeletionTimestamp() != nil {
				t.Error("a cached object was changed")
			}
		})
	}
}
