package cloudtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
)

func testNotFound(t *testing.T, h *Harness) {
	_, err := h.Cloud.Observe(callContext(t), h.Intent("absent", "uid-absent").Key)
	wantKind(t, err, cloud.NotFound)
	_, err = h.Cloud.Update(callContext(t), h.Intent("absent", "uid-absent").Key, h.Intent("absent", "uid-absent"))
	wantKind(t, err, cloud.NotFound)
	wantNames(t, h.names(t, Owner))
	h.clean(t)
}

func testIdempotent(t *testing.T, h *Harness) {
	in := h.Intent("once", "uid-once")
	first := h.running(t, in)
	again, err := h.Cloud.Create(callContext(t), in)
	if err != nil {
		t.Fatalf("second create: %v", err)
	}
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("second create changed the instance (-first +second):\n%s", d)
	}
	wantNames(t, h.names(t, Owner), "once")
}

func testIdentity(t *testing.T, h *Harness) {
	in := h.Intent("steady", "uid-steady")
	made := h.running(t, in)
	if made.Key != in.Key {
		t.Errorf("key: got %v, want %v", made.Key, in.Key)
	}
	if made.ID == "" || made.ProviderID == "" || made.Region == "" || made.Size == "" {
		t.Errorf("a running instance needs id, provider id, region and size: %+v", made)
	}
	var dns, ip string
	for _, a := range made.Addresses {
		if a.Type == corev1.NodeInternalDNS && dns == "" {
			dns = a.Address
		}
		if a.Type == corev1.NodeInternalIP && ip == "" {
			ip = a.Address
		}
	}
	if dns != in.Key.Name {
		t.Errorf("first InternalDNS: got %q, want the name %q", dns, in.Key.Name)
	}
	if ip == "" {
		t.Errorf("a running instance needs an InternalIP: %v", made.Addresses)
	}
	seen, err := h.Cloud.Observe(callContext(t), in.Key)
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	if d := cmp.Diff(made, seen); d != "" {
		t.Errorf("observe differs from create (-create +observe):\n%s", d)
	}
}

func testForeign(t *testing.T, h *Harness) {
	theirs := h.Intent("shared", "uid-theirs")
	before := h.running(t, theirs)
	ours := h.Intent("shared", "uid-ours")
	_, err := h.Cloud.Observe(callContext(t), ours.Key)
	wantKind(t, err, cloud.Conflict)
	_, err = h.Cloud.Create(callContext(t), ours)
	wantKind(t, err, cloud.Conflict)
	_, err = h.Cloud.Update(callContext(t), ours.Key, ours)
	wantKind(t, err, cloud.Conflict)
	h.gone(t, ours.Key, 0)
	h.Settle()
	after, err := h.Cloud.Observe(callContext(t), theirs.Key)
	if err != nil {
		t.Fatalf("observe the other one: %v", err)
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("somebody else's instance changed (-before +after):\n%s", d)
	}
	wantNames(t, h.names(t, Owner), "shared")
}

func testDelete(t *testing.T, h *Harness) {
	in := h.Intent("brief", "uid-brief")
	h.running(t, in)
	h.gone(t, in.Key, 0)
	wantKind(t, h.Cloud.Delete(callContext(t), in.Key), cloud.NotFound)
	_, err := h.Cloud.Observe(callContext(t), in.Key)
	wantKind(t, err, cloud.NotFound)
	wantNames(t, h.names(t, Owner))
	h.clean(t)
	// The name is free again, for another owner too.
	h.running(t, h.Intent("brief", "uid-second"))
}

func testDeleteNothing(t *testing.T, h *Harness) {
	wantKind(t, h.Cloud.Delete(callContext(t), h.Intent("never", "uid-never").Key), cloud.NotFound)
}

func testPartialCreate(t *testing.T, h *Harness) {
	if !h.Fail(FailCreate, cloud.Quota) {
		t.Skip("this cloud has no steps inside Create")
	}
	in := h.Intent("halfway", "uid-halfway")
	h.failing(t, in, cloud.Quota)
	_, err := h.Cloud.Observe(callContext(t), in.Key)
	wantKind(t, err, cloud.NotFound)
	h.running(t, in)
	h.gone(t, in.Key, 0)
	h.clean(t)
}

// failing calls Create until the scripted fault comes out.
func (h *Harness) failing(t *testing.T, in cloud.Intent, want cloud.Kind) {
	t.Helper()
	for range rounds {
		_, err := h.Cloud.Create(callContext(t), in)
		if err != nil {
			wantKind(t, err, want)
			return
		}
		h.Settle()
	}
	t.Fatalf("create never failed, want %s", want)
}

func testPartialDelete(t *testing.T, h *Harness) {
	if !h.Fail(FailCreate, cloud.NoCapacity) {
		t.Skip("this cloud has no steps inside Create")
	}
	in := h.Intent("stillborn", "uid-stillborn")
	h.failing(t, in, cloud.NoCapacity)
	wantNames(t, h.names(t, Owner), "stillborn")
	h.gone(t, in.Key, 0)
	h.clean(t)
}

func testDeleteFails(t *testing.T, h *Harness) {
	for _, step := range []Step{FailDelete, FailDeletePart} {
		name := map[Step]string{FailDelete: "stubborn", FailDeletePart: "sticky"}[step]
		in := h.Intent(name, "uid-"+name)
		h.running(t, in)
		if !h.Fail(step, cloud.Transient) {
			continue
		}
		h.gone(t, in.Key, 1)
		h.clean(t)
	}
}

func testLeftovers(t *testing.T, h *Harness) {
	if h.Vanish == nil {
		t.Skip("instances of this cloud have no parts")
	}
	in := h.Intent("vanished", "uid-vanished")
	h.running(t, in)
	h.Vanish(in.Key.Name)
	h.Settle()
	_, err := h.Cloud.Observe(callContext(t), in.Key)
	wantKind(t, err, cloud.NotFound)
	list, err := h.Cloud.List(callContext(t), Owner)
	if err != nil || len(list) != 1 {
		t.Fatalf("list: got %v, %v, want one leftover", list, err)
	}
	if got := list[0]; got.Key != in.Key || got.State != cloud.StateLeftover {
		t.Errorf("leftover: got %v %s, want %v %s", got.Key, got.State, in.Key, cloud.StateLeftover)
	}
	h.gone(t, list[0].Key, 0)
	wantNames(t, h.names(t, Owner))
	h.clean(t)
}

func testList(t *testing.T, h *Harness) {
	for _, name := range []string{"beta", "alpha"} {
		h.running(t, h.Intent(name, "uid-"+name))
	}
	other := h.Intent("gamma", "uid-gamma")
	other.Owner = "other-9zq4w"
	h.running(t, other)
	wantNames(t, h.names(t, Owner), "alpha", "beta")
	wantNames(t, h.names(t, other.Owner), "gamma")
	wantNames(t, h.names(t, "nobody-00000"))
	list, err := h.Cloud.List(callContext(t), Owner)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, i := range list {
		seen, err := h.Cloud.Observe(callContext(t), i.Key)
		if err != nil {
			t.Fatalf("observe %v as listed: %v", i.Key, err)
		}
		if i.ID != seen.ID || i.ProviderID != seen.ProviderID || i.Zone != seen.Zone || i.Size != seen.Size {
			t.Errorf("listed %+v, observed %+v: identities differ", i, seen)
		}
	}
}

func testUpdate(t *testing.T, h *Harness) {
	in := h.Intent("tagged", "uid-tagged")
	before := h.running(t, in)
	in.Tags = map[string]string{"team": "blue"}
	after, err := h.Cloud.Update(callContext(t), in.Key, in)
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	if after.Key != before.Key || after.ID != before.ID || after.ProviderID != before.ProviderID {
		t.Errorf("update changed the identity: got %+v, want %+v", after, before)
	}
	wantNames(t, h.names(t, Owner), "tagged")
}

func testFaults(t *testing.T, h *Harness) {
	in := h.Intent("faulty", "uid-faulty")
	calls := map[Step]func() error{
		FailObserve: func() error { _, err := h.Cloud.Observe(callContext(t), in.Key); return err },
		FailList:    func() error { _, err := h.Cloud.List(callContext(t), Owner); return err },
		FailCreate: func() error {
			for range rounds {
				if _, err := h.Cloud.Create(callContext(t), in); err != nil {
					return err
				}
				h.Settle()
			}
			return nil
		},
	}
	for _, step := range []Step{FailObserve, FailList, FailCreate} {
		for _, kind := range []cloud.Kind{cloud.Throttled, cloud.Denied, cloud.Transient, cloud.Quota, cloud.NoCapacity, cloud.Invalid} {
			if step != FailCreate && (kind == cloud.Quota || kind == cloud.NoCapacity || kind == cloud.Invalid) {
				continue // no cloud answers a question so
			}
			if !h.Fail(step, kind) {
				continue
			}
			err := calls[step]()
			if got := cloud.KindOf(err); got != kind {
				t.Errorf("%s failing with %s: got kind %q (%v)", step, kind, got, err)
			}
			if f := cloud.FaultOf(err); f != nil && f.Op == "" {
				t.Errorf("%s failing with %s: the fault does not say what was tried: %v", step, kind, err)
			}
		}
	}
}

func testContext(t *testing.T, h *Harness) {
	in := h.Intent("patient", "uid-patient")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Cloud.Create(done, in); err == nil {
		t.Error("create with an ended context: got no error")
	}
	if err := h.Cloud.Delete(done, in.Key); err == nil || cloud.KindOf(err) == cloud.NotFound {
		t.Errorf("delete with an ended context: got %v, want a failure that does not claim success", err)
	}
	if h.Hang == nil {
		return
	}
	h.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := h.Cloud.Observe(ctx, in.Key); ended <- err }()
	select {
	case err := <-ended:
		if err == nil || cloud.KindOf(err) == cloud.NotFound {
			t.Errorf("observe of a cloud that hangs: got %v, want a failure", err)
		}
	case <-time.After(deadline):
		t.Fatalf("observe outlived its deadline by %s", deadline)
	}
}

func testConcurrentSame(t *testing.T, h *Harness) {
	in := h.Intent("contended", "uid-contended")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			// Losers may be told that the resource is busy; nothing worse.
			if _, err := h.Cloud.Create(callContext(t), in); err != nil && cloud.KindOf(err) != cloud.Transient {
				t.Errorf("concurrent create: %v", err)
			}
		})
	}
	wg.Wait()
	h.running(t, in)
	wantNames(t, h.names(t, Owner), "contended")
	h.gone(t, in.Key, 0)
	h.clean(t)
}

func testConcurrentMany(t *testing.T, h *Harness) {
	const n = 10
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			name := fmt.Sprintf("crowd-%d", i)
			if _, err := h.Cloud.Create(callContext(t), h.Intent(name, "uid-"+name)); err != nil {
				t.Errorf("create %s: %v", name, err)
			}
		})
	}
	wg.Wait()
	ids := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("crowd-%d", i)
		inst := h.running(t, h.Intent(name, "uid-"+name))
		for _, a := range append([]corev1.NodeAddress{{Address: inst.ID}}, inst.Addresses...) {
			if other, taken := ids[a.Address]; taken && other != name {
				t.Errorf("%s and %s share %q", name, other, a.Address)
			}
			ids[a.Address] = name
		}
	}
	for i := range n {
		h.gone(t, h.Intent(fmt.Sprintf("crowd-%d", i), fmt.Sprintf("uid-crowd-%d", i)).Key, 0)
	}
	h.clean(t)
}
