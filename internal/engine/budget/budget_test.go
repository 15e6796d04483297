package budget_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/budget"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func val(s string) *intstr.IntOrString {
	if s == "" {
		return nil
	}
	v := intstr.Parse(s)
	return &v
}

func TestPercentAndRounding(t *testing.T) {
	for _, r := range []struct {
		name string
		f    func(*intstr.IntOrString, int) (int, error)
		v    string
		of   int
		want int
	}{
		{"pool: half a node is one", budget.PoolMaxUnavailable, "10%", 5, 1},
		{"pool: down", budget.PoolMaxUnavailable, "10%", 25, 2},
		{"pool: empty", budget.PoolMaxUnavailable, "10%", 0, 1},
		{"pool: unset", budget.PoolMaxUnavailable, "", 9, 1},
		{"pool: zero still moves", budget.PoolMaxUnavailable, "0", 9, 1},
		{"pool: number", budget.PoolMaxUnavailable, "3", 9, 3},
		{"health: unset is all", budget.MaxUnhealthy, "", 7, 7},
		{"health: down", budget.MaxUnhealthy, "40%", 7, 2},
		{"health: 40 of 40", budget.MaxUnhealthy, "40%", 40, 16},
		{"health: all", budget.MaxUnhealthy, "100%", 7, 7},
		{"health: none", budget.MaxUnhealthy, "0%", 7, 0},
		{"health: negative is none", budget.MaxUnhealthy, "-3", 7, 0},
	} {
		t.Run(r.name, func(t *testing.T) {
			if got, err := r.f(val(r.v), r.of); err != nil || got != r.want {
				t.Errorf("got %d, %v; want %d", got, err, r.want)
			}
		})
	}
}

func TestStringWithoutPercentIsANumber(t *testing.T) {
	v := intstr.FromString("4")
	if got, err := budget.MaxUnhealthy(&v, 10); err != nil || got != 4 {
		t.Errorf("got %d, %v; want 4", got, err)
	}
}

func TestNonsenseIsAnError(t *testing.T) {
	for _, s := range []string{"x", "%", "-1%", "1.5%", "9999999%"} {
		v := intstr.FromString(s)
		if _, err := budget.MaxUnhealthy(&v, 10); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}

func TestRollingResolvesAsClusterAPI(t *testing.T) {
	for _, r := range []struct {
		surge, unavailable string
		replicas           int
		want               budget.Surge
		err                error
	}{
		{"10%", "0", 5, budget.Surge{Above: 1}, nil},
		{"10%", "10%", 5, budget.Surge{Above: 1}, nil},
		{"0%", "10%", 5, budget.Surge{Below: 1}, nil},
		{"0", "0", 3, budget.Surge{}, budget.ErrNoMove},
		{"", "", 3, budget.Surge{Above: 1}, nil},
		{"0", "50%", 5, budget.Surge{Below: 2}, nil},
	} {
		t.Run(fmt.Sprintf("%q %q of %d", r.surge, r.unavailable, r.replicas), func(t *testing.T) {
			got, err := budget.Rolling(val(r.surge), val(r.unavailable), r.replicas)
			if !errors.Is(err, r.err) || got != r.want {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, r.want, r.err)
			}
		})
	}
}

func TestRoundingAgainstTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, total := rapid.IntRange(0, 100).Draw(rt, "percent"), rapid.IntRange(0, 5000).Draw(rt, "total")
		v := intstr.FromString(fmt.Sprintf("%d%%", p))
		low, err1 := budget.Floor(v, total)
		high, err2 := budget.Ceil(v, total)
		if err1 != nil || err2 != nil {
			rt.Fatal(err1, err2)
		}
		if low*100 > p*total || (low+1)*100 <= p*total {
			rt.Fatalf("floor of %d%% of %d is %d", p, total, low)
		}
		if high*100 < p*total || high > 0 && (high-1)*100 >= p*total {
			rt.Fatalf("ceiling of %d%% of %d is %d", p, total, high)
		}
	})
}

func TestClaimNamesWhatFillsTheAccount(t *testing.T) {
	a := budget.Account{
		Limit:   budget.Of(2),
		Members: []budget.Member{{Node: "a", Ready: true}, {Node: "b", Ready: true, Cordoned: true}, {Node: "c", Ready: true}},
		Claims:  []budget.Claim{{Node: "c", By: "machineconfigpool/worker", Since: now}},
	}
	_, err := a.Claim("a", "machinehealthcheck/mhc", now)
	var spent *budget.Spent
	if !errors.As(err, &spent) {
		t.Fatalf("got %v, want the account to be spent", err)
	}
	if want := "budget is spent: 2 of 2 nodes may be unavailable: b, c (machineconfigpool/worker)"; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	for _, again := range []string{"b", "c"} {
		if _, err := a.Claim(again, "machinehealthcheck/mhc", now); err != nil {
			t.Errorf("going on with %s was refused: %v", again, err)
		}
	}
}

func TestAccountWithoutLimitRecords(t *testing.T) {
	a := budget.Account{Members: []budget.Member{{Node: "a"}, {Node: "b", Ready: true}}}
	got, err := a.Claim("b", "x/y", now)
	if diff := cmp.Diff(got, []budget.Claim{{Node: "b", By: "x/y", Since: now}}); err != nil || diff != "" {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
	if a.Free() != -1 {
		t.Errorf("free %d, want -1", a.Free())
	}
}

func TestSettleDropsWhatIsOver(t *testing.T) {
	old := now.Add(-time.Hour)
	a := budget.Account{
		Members: []budget.Member{{Node: "back", Ready: true}, {Node: "down"}, {Node: "cordoned", Ready: true, Cordoned: true}, {Node: "young", Ready: true}},
		Claims: []budget.Claim{
			{Node: "back", By: "x", Since: old}, {Node: "down", By: "x", Since: old}, {Node: "cordoned", By: "x", Since: old},
			{Node: "young", By: "x", Since: now.Add(-time.Minute)}, {Node: "gone", By: "x", Since: now},
		},
	}
	var got []string
	for _, c := range a.Settle(now) {
		got = append(got, c.Node)
	}
	if diff := cmp.Diff(got, []string{"cordoned", "down", "young"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestReleaseLeavesOthersClaims(t *testing.T) {
	a := budget.Account{Claims: []budget.Claim{{Node: "a", By: "x"}, {Node: "b", By: "y"}}}
	if got := a.Release("a", "y"); len(got) != 2 {
		t.Errorf("took another's claim: %v", got)
	}
	if got := a.Release("a", "x"); len(got) != 1 || got[0].Node != "b" {
		t.Errorf("got %v", got)
	}
}

func drawAccount(rt *rapid.T) budget.Account {
	a := budget.Account{Limit: budget.Of(rapid.IntRange(0, 8).Draw(rt, "limit"))}
	for i := range rapid.IntRange(0, 12).Draw(rt, "nodes") {
		a.Members = append(a.Members, budget.Member{Node: fmt.Sprintf("n%d", i), Ready: rapid.Bool().Draw(rt, "ready"), Cordoned: rapid.Bool().Draw(rt, "cordoned")})
	}
	return a
}

func TestClaimsNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawAccount(rt)
		before := len(a.Unavailable())
		for _, m := range a.Members {
			if claims, err := a.Claim(m.Node, "x", now); err == nil {
				a.Claims = claims
			}
		}
		if got := len(a.Unavailable()); got > max(before, *a.Limit) {
			rt.Fatalf("%d unavailable, limit %d, were %d", got, *a.Limit, before)
		}
	})
}

func TestAccountIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawAccount(rt)
		b := a
		b.Members = rapid.Permutation(a.Members).Draw(rt, "order")
		if !slices.Equal(a.Unavailable(), b.Unavailable()) || a.Free() != b.Free() {
			rt.Fatalf("%v and %v", a.Unavailable(), b.Unavailable())
		}
	})
}

func FuzzDecodeClaims(f *testing.F) {
	for _, s := range []string{"", "[]", `[{"node":"a","by":"b","since":"2026-11-30T12:00:00Z"}]`, `[{"node":"a"}]`, "null", "{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		claims, err := budget.Decode(s)
		if err != nil {
			return
		}
		text := budget.Encode(claims)
		again, err := budget.Decode(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := budget.Encode(again); got != text {
			t.Fatalf("got %s, want %s", got, text)
		}
		if len(claims) == 0 && strings.TrimSpace(text) != "" {
			t.Fatalf("no claims became %q", text)
		}
	})
}
