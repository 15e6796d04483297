package pool_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/telemetry"
)

// chaos is a world in which everybody does anything at any time.
type chaos struct {
	*world
	rnd   *rand.Rand
	limit int
	mine  map[string]bool // nodes that an admin cordoned
	trail []string
}

func (c *chaos) note(format string, args ...any) {
	c.trail = append(c.trail, c.clk.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// TestRandomWorlds lets agents fail and recover, admins cordon, uncordon and
// edit annotations, targets change, caches lag, requests fail and controllers
// restart. Meanwhile no more nodes than allowed are on their way; afterwards
// every node has the target, and only admins' cordons are left.
func TestRandomWorlds(t *testing.T) {
	seeds := 15
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 7))
			c := &chaos{rnd: rnd, limit: 1 + rnd.IntN(3), mine: map[string]bool{}}
			n := 3 + rnd.IntN(6)
			objs := workers(n)
			for i := range n {
				if rnd.IntN(2) == 0 {
					objs = append(objs, podOn(fmt.Sprintf("w-%d", i), fmt.Sprintf("p-%d", i)))
				}
			}
			c.world = newWorld(t, objs...)
			c.anyhow = true // admins uncordon after a drain, at their own risk
			edit(c.world, c.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
				v := intstr.FromInt(c.limit)
				p.Spec.MaxUnavailable = &v
				if rnd.IntN(3) == 0 {
					p.Annotations[wire.AnnotationRollout] = `{"canary":{"nodes":1},"growth":2,"soak":"10s"}`
				}
				if rnd.IntN(3) == 0 {
					p.Annotations[wire.AnnotationWindows] = "Mon-Sun 12:00-12:20 UTC; Mon-Sun 13:00-13:30 UTC"
				}
			})
			defer func() {
				if t.Failed() {
					t.Log(c.trail)
				}
			}()
			for range 400 {
				c.anything()
			}
			c.calm()
		})
	}
}

// anything does one thing.
func (c *chaos) anything() {
	names := c.nodeNames()
	name := names[c.rnd.IntN(len(names))]
	switch c.rnd.IntN(40) {
	case 0:
		target := []string{configA, configB, configC}[c.rnd.IntN(3)]
		c.note("aim at %s", target)
		c.aim(target)
	case 1:
		c.note("cordon %s", name)
		c.mine[name] = true
		edit(c.world, c.world.node(name), func(n *corev1.Node) {
			if n.Annotations[telemetry.AnnotationCordonedBy] == "machine-config-controller" {
				delete(c.mine, name) // it is ours already, or was a moment ago: nobody can tell
			}
			n.Spec.Unschedulable = true
		})
	case 2:
		c.note("uncordon %s", name)
		delete(c.mine, name)
		edit(c.world, c.world.node(name), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	case 3:
		c.note("edit %s", name)
		edit(c.world, c.world.node(name), func(n *corev1.Node) {
			switch c.rnd.IntN(3) {
			case 0:
				n.Annotations[wire.AnnotationLastAppliedDrain] = "" // it is answered again
			case 1:
				n.Annotations[wire.AnnotationReason] = "what an admin writes"
			case 2:
				n.Annotations[wire.AnnotationDrainStarted] = "yesterday"
			}
		})
	case 4:
		a := c.agents[name]
		if bad := []string{configB, configC}[c.rnd.IntN(2)]; a.fails[bad] == "" {
			c.note("%s fails on %s", name, bad)
			a.fails[bad] = "cannot write"
		} else {
			delete(a.fails, bad)
		}
	case 5:
		c.note("restart")
		c.restart()
	case 6:
		c.api.FailNext("patch", []string{"Node", "MachineConfigPool", "MachineConfigPool/status"}[c.rnd.IntN(3)],
			apierrors.NewServerTimeout(schema.GroupResource{Resource: "things"}, "patch", 1))
	case 7:
		edit(c.world, c.pool("worker"), func(p *machineconfigv1.MachineConfigPool) { p.Spec.Paused = c.rnd.IntN(3) == 0 })
	case 8:
		c.clk.Step(time.Duration(c.rnd.IntN(900)) * time.Second)
	case 9, 10, 11, 12, 13, 14, 15, 16, 17, 18:
		c.agent(name)
	case 19, 20, 21, 22, 23, 24, 25, 26:
		c.try(c.drains, name)
	default:
		if c.rnd.IntN(3) > 0 {
			for _, gvk := range c.cache.Behind() {
				c.cache.Advance(gvk, 1+c.rnd.IntN(4))
			}
		}
		c.try(c.pools, "worker")
		c.check()
		c.clk.Step(time.Second)
	}
}

func (c *chaos) try(k kube.Controller, name string) {
	_, err := k.Step(c.t.Context(), client.ObjectKey{Name: name})
	if err != nil {
		c.note("%s: %v", k.Name, err)
	}
}

// check counts the nodes that the controllers sent on their way.
func (c *chaos) check() {
	c.t.Helper()
	if b := c.busy(); len(b) > c.limit {
		c.t.Fatalf("%v are on their way, %d may be", b, c.limit)
	}
}

// calm lets the world settle once nobody disturbs it.
func (c *chaos) calm() {
	c.t.Helper()
	for _, a := range c.agents {
		a.fails = map[string]string{}
	}
	edit(c.world, c.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
		p.Spec.Paused = false
		delete(p.Annotations, wire.AnnotationWindows)
	})
	kept := 0
	for _, name := range slices.Sorted(maps.Keys(c.mine)) {
		if kept++; kept >= c.limit {
			delete(c.mine, name)
		}
	}
	for _, name := range c.nodeNames() {
		n := c.world.node(name)
		if by := n.Annotations[telemetry.AnnotationCordonedBy]; n.Spec.Unschedulable && by != "machine-config-controller" && !c.mine[name] {
			edit(c.world, n, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		}
	}
	target := c.pool("worker").Spec.Configuration.Name
	for quiet := 0; quiet < 70; quiet++ {
		before := c.api.Writes()
		c.cache.Sync()
		c.try(c.pools, "worker")
		c.check()
		c.cache.Sync()
		for _, n := range c.nodeNames() {
			c.try(c.drains, n)
			c.agent(n)
		}
		c.clk.Step(time.Second)
		if c.api.Writes() != before {
			quiet = 0
		}
	}
	for _, name := range c.nodeNames() {
		n := c.world.node(name)
		if n.Spec.Unschedulable && n.Annotations[telemetry.AnnotationCordonedBy] == "machine-config-controller" {
			c.t.Errorf("node %s is still cordoned by us: %v", name, n.Annotations)
		}
		if n.Annotations[wire.AnnotationCurrentConfig] != target && !n.Spec.Unschedulable {
			_, reason, message := c.message("worker", "Waiting")
			c.t.Errorf("node %s has %s, not %s; waiting: %s %s", name, n.Annotations[wire.AnnotationCurrentConfig], target, reason, message)
		}
		if c.mine[name] && !n.Spec.Unschedulable {
			c.t.Errorf("node %s: an admin's cordon was undone", name)
		}
	}
}
