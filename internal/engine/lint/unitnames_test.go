package lint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/lint"
)

func TestUnitNamesAreKnownByTheirDigest(t *testing.T) {
	a, b := lint.NewUnitNames([]string{"b.service", "a.service", "", "b.service"}), lint.NewUnitNames([]string{"a.service", "b.service"})
	if diff := cmp.Diff(a, b); diff != "" || a.Digest() != b.Digest() || len(a.Digest()) != 32 {
		t.Errorf("order and repeats count: %s, %s", diff, a.Digest())
	}
	got, err := lint.ParseUnitNames(a.Text(), a.Digest())
	if err != nil || !cmp.Equal(got, a) {
		t.Errorf("read back: %v, %v", got, err)
	}
	if _, err := lint.ParseUnitNames("a.service\n", a.Digest()); err == nil || !strings.Contains(err.Error(), "want "+a.Digest()) {
		t.Errorf("a list that was cut off: %v", err)
	}
	if _, err := lint.ParseUnitNames(strings.Repeat("x", 1<<21), ""); err == nil {
		t.Error("a list without end is read")
	}
}

func TestUnitsByPoolAreCompleteWhenEveryNodeHasTold(t *testing.T) {
	on := func(role string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + role: ""}}
	}
	pools := map[string]*metav1.LabelSelector{"worker": on("worker"), "infra": on("infra"), "gpu": on("gpu")}
	one, two := lint.NewUnitNames([]string{"kdump.service"}), lint.NewUnitNames([]string{"getty@.service"})
	published := map[string]lint.UnitNames{one.Digest(): one, two.Digest(): two}
	worker := map[string]string{"node-role.kubernetes.io/worker": ""}
	infra := map[string]string{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/infra": ""}
	got := lint.UnitsByPool(pools, []lint.UnitNode{
		{worker, one.Digest()}, {worker, two.Digest()}, {infra, one.Digest()}, {infra, ""}, {nil, one.Digest()},
	}, published)
	want := map[string]lint.UnitFacts{
		"worker": {Units: map[string]bool{"kdump.service": true, "getty@.service": true}, Complete: true},
		"infra":  {Units: map[string]bool{"kdump.service": true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := lint.UnitsByPool(pools, []lint.UnitNode{{worker, "gone"}}, published); got["worker"].Complete {
		t.Error("a digest that nobody published is taken for a report")
	}
}

func FuzzParseUnitNames(f *testing.F) {
	f.Add("a.service\nb.service\n", "")
	f.Add("\x00\xff\n\n a b", "x")
	f.Fuzz(func(t *testing.T, text, digest string) {
		_, _ = lint.ParseUnitNames(text, digest)
		u := lint.NewUnitNames(strings.Split(text, "\n"))
		if back, err := lint.ParseUnitNames(u.Text(), u.Digest()); err != nil || len(back) != len(u) {
			t.Errorf("%q: %v, %v", u, back, err)
		}
	})
}
