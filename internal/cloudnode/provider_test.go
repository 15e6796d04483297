package cloudnode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	testingclock "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/cloudnode"
	"millwright.io/millwright/internal/provider/fake"
)

const owner = cloud.Owner("infra")

type setup struct {
	clk *testingclock.FakeClock
	c   *fake.Cloud
	p   *cloudnode.Provider
}

// newSetup has one running instance named a.
func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{clk: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	s.c = fake.New(s.clk)
	spec, _, err := fake.Codec{}.Decode([]byte(`{"kind":"FakeMachineProviderSpec","region":"north","zone":"1","size":"small"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.c.Create(t.Context(), cloud.Intent{Key: cloud.Key{UID: "u1", Name: "a"}, Owner: owner, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	s.clk.Step(time.Minute)
	s.p = cloudnode.New("fake", owner, func(context.Context) (cloud.Cloud, error) { return s.c, nil }, s.clk)
	return s
}

func node(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

func TestMetadataIsWhatTheNodeGets(t *testing.T) {
	s := newSetup(t)
	m, err := s.p.InstanceMetadata(t.Context(), node("a", ""))
	if err != nil {
		t.Fatal(err)
	}
	i, err := s.c.Observe(t.Context(), cloud.Key{UID: "u1", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{m.ProviderID, m.InstanceType, m.Region, m.Zone}
	if diff := cmp.Diff([]string{i.ProviderID, "small", "north", "north-1"}, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	for _, a := range m.NodeAddresses {
		if a.Type == corev1.NodeInternalDNS {
			t.Errorf("got address %v, want no DNS names on the Node", a)
		}
	}
}

func TestForeignNodesAreLeftAlone(t *testing.T) {
	s := newSetup(t)
	n := node("a", "dcs://elsewhere/a")
	if ok, err := s.p.InstanceExists(t.Context(), n); !ok || err != nil {
		t.Errorf("got exists %v, %v; want true: another cloud's Node is never deleted", ok, err)
	}
	if off, err := s.p.InstanceShutdown(t.Context(), n); off || err != nil {
		t.Errorf("got shut down %v, %v; want false", off, err)
	}
	if m, err := s.p.InstanceMetadata(t.Context(), n); err == nil {
		t.Errorf("got metadata %v, want an error", m)
	}
}

func TestANodeIsGoneOnlyByAFreshList(t *testing.T) {
	s := newSetup(t)
	m, err := s.p.InstanceMetadata(t.Context(), node("a", ""))
	if err != nil {
		t.Fatal(err)
	}
	n := node("a", m.ProviderID)
	if ok, err := s.p.InstanceExists(t.Context(), n); !ok || err != nil {
		t.Fatalf("got exists %v, %v; want true", ok, err)
	}
	s.c.Vanish("a")
	s.clk.Step(11 * time.Second)
	if ok, err := s.p.InstanceExists(t.Context(), n); ok || err != nil {
		t.Errorf("got exists %v, %v; want false once the list was read again", ok, err)
	}
	s.c.FailEvery(fake.OpList, &cloud.Fault{Kind: cloud.Throttled})
	s.clk.Step(time.Minute)
	if ok, err := s.p.InstanceExists(t.Context(), n); ok || err == nil {
		t.Errorf("got exists %v, %v; want an error: a cloud that does not answer is no proof", ok, err)
	}
}

func TestShutdownFollowsTheInstance(t *testing.T) {
	s := newSetup(t)
	for _, row := range []struct {
		state cloud.State
		want  bool
	}{{cloud.StateRunning, false}, {cloud.StateStopped, true}, {cloud.StateDeallocated, true}, {cloud.StateUnknown, false}} {
		s.c.SetState("a", row.state, nil)
		got, err := s.p.InstanceShutdown(t.Context(), node("a", ""))
		if err != nil || got != row.want {
			t.Errorf("state %s: got %v, %v; want %v", row.state, got, err, row.want)
		}
	}
	s.c.Vanish("a")
	if _, err := s.p.InstanceMetadata(t.Context(), node("a", "")); !errors.Is(err, cloudprovider.InstanceNotFound) {
		t.Errorf("got %v, want InstanceNotFound for a VM that vanished", err)
	}
}
