package sim_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/provider/fake"
)

var (
	update = flag.Bool("update", false, "rewrite the transcript in testdata")
	seeds  = flag.Int("seeds", 40, "how many random worlds to run")
	first  = flag.Uint64("seed", 1, "the first seed")
)

// goldenSeed is the world whose history is kept for people to read.
const goldenSeed = 6

const (
	chaosSteps = 250
	restRounds = 2000
)

// happens is what has to happen in some world, or the worlds prove nothing.
var happens = map[string]string{
	"evictions":                "create Pod/eviction",
	"repairs by the check":     actorHealth + " workers: delete Machine",
	"claims of repairs":        actorHealth + " workers: patch MachineSet",
	"preDrain hooks":           "user: preDrain hook",
	"preTerminate hooks":       "user: preTerminate hook",
	"silent kubelets":          "falls silent",
	"vanished instances":       "vanishes",
	"budgets that allow none":  "the workload may lose 0 pods",
	"processes that died":      " died ",
	"repairs left to an admin": "all kubelets answer",
}

func TestMachinesConvergeInRandomWorlds(t *testing.T) {
	counts := map[string]int{}
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			if seed%2 == 0 { // the trouble comes when all is up
				w.chaos = false
				w.rest()
				w.chaos = true
			}
			w.trouble(chaosSteps)
			w.rest()
			w.checkEnd()
			w.checkSilence()
			for what, text := range happens {
				counts[what] += bytes.Count(w.out.Bytes(), []byte(text))
			}
		})
	}
	t.Logf("%v", counts)
	for what := range happens {
		if counts[what] == 0 && *seeds >= 40 {
			t.Errorf("no %s in %d worlds", what, *seeds)
		}
	}
}

func TestTranscriptOfOneWorld(t *testing.T) {
	w := newWorld(t, goldenSeed)
	w.trouble(80)
	w.rest()
	w.checkEnd()
	file := filepath.Join("testdata", fmt.Sprintf("machines-seed-%d.txt", goldenSeed))
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, w.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), w.out.String()); d != "" {
		t.Errorf("the history changed (-want +got); review it, then run with -update:\n%s", d)
	}
}

// trouble takes random steps with everything that can go wrong.
func (w *world) trouble(steps int) {
	for range steps {
		switch n := w.rng.IntN(112); {
		case n < 55:
			w.reconcileOne()
		case n < 75:
			w.showOne()
		case n < 85:
			w.clk.Step(time.Duration(1+w.rng.IntN(15)) * time.Second)
		case n < 92:
			w.boot()
		case n < 98:
			w.operate()
		default:
			w.interfere(n - 98)
		}
	}
	w.chaos = false
	w.print("the trouble stops; %d replicas are wanted", w.want)
	w.freezeBudget(1)
}

// interfere is one thing that clouds, servers or people do.
func (w *world) interfere(n int) {
	switch {
	case n < 3:
		w.fault()
	case n < 5:
		w.apiFault()
	case n < 7:
		w.scale()
	case n < 8:
		w.deleteOne()
	case n < 9:
		w.hookSome()
	case n < 11:
		w.unhook()
	case n < 12:
		w.sicken()
	case n < 13:
		w.recover()
	default:
		w.freezeBudget(int32(w.rng.IntN(2)))
	}
}

// rest runs the world, without trouble, until nothing is due for an hour.
func (w *world) rest() {
	idle := time.Duration(0)
	for range restRounds {
		busy := w.boot()
		busy = w.operate() || busy
		busy = w.unhook() || busy
		for _, p := range w.procs {
			for _, gvk := range p.cache.Behind() {
				p.show(gvk, w.api.Length(gvk))
				busy = true
			}
			for _, key := range p.ready() {
				before := w.api.Writes()
				p.reconcile(key)
				busy = busy || w.api.Writes() != before
			}
		}
		if busy {
			idle = 0
			continue
		}
		w.clk.Step(5 * time.Second)
		if idle += 5 * time.Second; idle > 15*time.Minute {
			if !w.relieve() {
				return
			}
			idle = 0
		}
	}
	w.fail("no rest after %d rounds", restRounds)
}

// checkSilence lets another hour pass and expects no write.
func (w *world) checkSilence() {
	before := w.api.Writes()
	for range 120 {
		w.clk.Step(30 * time.Second)
		for _, p := range w.procs {
			for _, key := range p.ready() {
				p.reconcile(key)
			}
		}
	}
	if n := w.api.Writes() - before; n > 0 {
		w.fail("%d writes in an idle hour, the last: %v", n, w.api.Log()[len(w.api.Log())-1])
	}
}

func (w *world) reconcileOne() {
	p := w.procs[w.rng.IntN(len(w.procs))]
	if ready := p.ready(); len(ready) > 0 {
		p.reconcile(ready[w.rng.IntN(len(ready))])
	}
}

// showOne lets one cache see one kind a little further, or to the end.
func (w *world) showOne() {
	p := w.procs[w.rng.IntN(len(w.procs))]
	behind := p.cache.Behind()
	if len(behind) == 0 {
		return
	}
	gvk := behind[w.rng.IntN(len(behind))]
	for _, m := range p.marks[gvk] {
		if m > p.cache.Position(gvk) {
			p.show(gvk, m)
			return
		}
	}
}

// boot does what machines and the cloud's node controller do: a running
// instance gets a ready Node, a Node without instance goes. It reports whether
// anything happened.
func (w *world) boot() bool {
	acted := false
	w.begin(actorCloud)
	ctx := context.Background()
	have, running := map[string]*corev1.Node{}, map[string]bool{}
	nodes := w.nodes()
	for i := range nodes {
		have[nodes[i].Spec.ProviderID] = &nodes[i]
	}
	for _, i := range w.cloud.Instances() {
		running[i.ProviderID] = true
		n := have[i.ProviderID]
		if i.State != cloud.StateRunning || n != nil && len(n.Status.Conditions) > 0 {
			continue
		}
		acted = true
		if n == nil {
			n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.Key.Name}, Spec: corev1.NodeSpec{ProviderID: i.ProviderID}}
			if w.api.Create(ctx, n) != nil {
				continue // a kubelet tries again, and so does the next round
			}
		}
		n.Status.Addresses = i.Addresses
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clk.Now())}}
		_ = w.api.Status().Update(ctx, n) // the same
	}
	for i := range nodes {
		if nodes[i].Name != haven && !running[nodes[i].Spec.ProviderID] {
			_ = w.api.Delete(ctx, &nodes[i]) // the same
			acted = true
		}
	}
	w.end()
	return acted
}

func (w *world) fault() {
	ops := []string{fake.OpObserve, fake.OpCreate, fake.OpCreateNIC, fake.OpCreateDisk, fake.OpCreateVM, fake.OpDelete, fake.OpDeleteVM, fake.OpDeleteDisk, fake.OpDeleteNIC}
	kinds := []cloud.Kind{cloud.Transient, cloud.Throttled, cloud.Quota, cloud.NoCapacity, cloud.Credentials, cloud.Denied}
	op, kind := ops[w.rng.IntN(len(ops))], kinds[w.rng.IntN(len(kinds))]
	w.print("the cloud will fail: %s: %s", op, kind)
	w.cloud.FailNext(op, &cloud.Fault{Kind: kind, Op: op, Reason: string(kind), Message: op + ": " + string(kind)})
}

func (w *world) apiFault() {
	verbs := []string{"create", "patch", "delete", "get"}
	kinds := []string{"Machine", "Machine/status", "MachineSet/status", "Node", "Pod/eviction", "MachineHealthCheck/status"}
	verb, kind := verbs[w.rng.IntN(len(verbs))], kinds[w.rng.IntN(len(kinds))]
	w.print("the API server will fail: %s %s", verb, kind)
	w.api.FailNext(verb, kind, errors.New("connection reset by peer"))
}

func (w *world) scale() {
	to := w.rng.IntN(6)
	var set machinev1.MachineSet
	if w.api.Get(context.Background(), client.ObjectKey{Namespace: wire.Namespace, Name: setName}, &set) != nil {
		return
	}
	set.Spec.Replicas = ptr.To(int32(to))
	w.begin(actorUser)
	err := w.api.Update(context.Background(), &set)
	if w.end(); err == nil {
		w.print("user: scaled from %d to %d", w.want, to)
		w.want, w.most = to, max(w.most, to)
	}
}

func (w *world) deleteOne() {
	all := w.machines()
	if len(all) == 0 {
		return
	}
	w.begin(actorUser)
	_ = w.api.Delete(context.Background(), &all[w.rng.IntN(len(all))]) // a failing API: they will not insist
	w.end()
	w.check()
}
