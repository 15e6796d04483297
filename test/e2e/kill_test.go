package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKilledControllersLeakNothing kills the two controllers that make and
// remove VMs at random moments while Machines come and go, and then compares
// what is there with what is wanted. MILLWRIGHT_E2E_KILLS sets how often.
func TestKilledControllersLeakNothing(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	kills, machines := sized(6, 50), sized(4, 20)
	if n, err := strconv.Atoi(os.Getenv("MILLWRIGHT_E2E_KILLS")); err == nil {
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d: %d kills, %d Machines", seed, kills, machines)
	r := rand.New(rand.NewPCG(seed, 0))
	makeSet(t, w, "killed", "")

	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() { churn(t, w, "killed", machines, stop) })
	for n := range kills {
		name := []string{"machine-controller", "machineset-controller"}[r.IntN(2)]
		var p process
		err := poll(t.Context(), changeLimit, func() (err error) {
			p, err = w.controller(name)
			return err
		})
		if err != nil {
			t.Errorf("kill %d: %v\n%s", n, err, w.logs())
			break
		}
		// Any moment of the process's life: at once, or well into its work.
		moment(t, time.Duration(r.IntN(5000))*time.Millisecond)
		if err := p.kill(); err != nil {
			t.Errorf("kill %s: %v", name, err)
		}
		untilEnded(t, p) // or the next round may find it dying
	}
	close(stop)
	done.Wait()
	if t.Failed() {
		return
	}
	untilControllers(t, w)

	want := machines / 2
	scale(t, w, "killed", want)
	untilRunning(t, w, "killed", want)
	names := "oc get machines " + members("killed") + " -o jsonpath='{range .items[*]}{.metadata.name}{\"\\n\"}{end}' | sort"
	const vms = `millwright sim vm list -o json | jq -r '.[].name' | grep ^killed- | sort`
	w.untilIs(t, vms, w.sh(t, names))
	w.untilIs(t, "oc get nodes -o name | grep -c ^node/killed-", fmt.Sprint(want))
	untilHolds(t, w, "killed-", map[string]int{"virtualMachines": want, "networkInterfaces": want, "disks": want})

	scale(t, w, "killed", 0)
	w.untilIs(t, names, "")
	untilHolds(t, w, "killed-", map[string]int{})
	w.untilIs(t, "oc get nodes -o name | grep -c ^node/killed-", "0")
}

// churn scales a set up and down until it is told to stop, never waiting for
// the last wish to come true.
func churn(t *testing.T, w *world, set string, most int, stop chan struct{}) {
	up := true
	for {
		replicas := 0
		if up {
			replicas = most
		}
		up = !up
		r := w.shell(t.Context(), fmt.Sprintf("oc scale machineset %s -n $MAPI --replicas=%d", set, replicas))
		if r.code != 0 {
			t.Errorf("scale to %d: %s", replicas, r.stderr)
		}
		timer := time.NewTimer(7 * time.Second)
		select {
		case <-stop:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// untilEnded waits until a killed process is gone.
func untilEnded(t *testing.T, p process) {
	t.Helper()
	err := poll(t.Context(), changeLimit, func() error {
		if p.alive() {
			return fmt.Errorf("process %d still runs", p.pid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// moment lets a random time pass: the moment of a kill is the input here, not
// something to wait for.
func moment(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// untilHolds waits until the simulated account holds exactly these resources
// with the text in their names.
func untilHolds(t testing.TB, w *world, text string, want map[string]int) {
	t.Helper()
	err := poll(t.Context(), changeLimit, func() error {
		got := cloudResources(t, w, text)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the cloud holds %v, want %v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.TrimSpace(w.sh(t, "oc get machines -n $MAPI -o wide")), w.logs())
	}
}
