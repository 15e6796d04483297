package dcs_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/sim/vrm"
)

// A site that takes fewer requests at once than we send: callers are told to
// come again, nothing is repeated behind their back, and all get there.
func TestTighterLimitThanOurs(t *testing.T) {
	s := newSubject(t, func(c *vrm.Config) { c.Concurrency = 4 })
	const n = 30
	var mu sync.Mutex
	calls := 0
	left := map[string]bool{}
	for i := range n {
		left[fmt.Sprintf("m-%d", i)] = true
	}
	for round := 0; len(left) > 0 && round < 200; round++ {
		var wg sync.WaitGroup
		for name := range left {
			wg.Go(func() {
				inst, err := s.cloud.Create(t.Context(), intent(name, "uid-"+name, nil))
				mu.Lock()
				defer mu.Unlock()
				calls++
				switch {
				case err != nil && cloud.KindOf(err) != cloud.Transient:
					t.Errorf("%s: got %q (%v), want Transient", name, cloud.KindOf(err), err)
				case err == nil && inst.State == cloud.StateRunning:
					delete(left, name)
				}
			})
		}
		wg.Wait()
		s.clk.Step(20 * time.Second)
	}
	vms := 0
	for _, v := range s.vrm.VMs() {
		if !v.Template {
			vms++
		}
	}
	req := s.vrm.Requests()
	t.Logf("%d calls of Create, %d requests refused", calls, req["refused"])
	if len(left) > 0 || vms != n || req["refused"] > calls*2 {
		t.Errorf("left %d, VMs %d, want %d; %d calls, requests %v", len(left), vms, n, calls, req)
	}
}
