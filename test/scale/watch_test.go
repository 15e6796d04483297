//go:build scale

package scale

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// watched is what was seen of the workers while they were rolled.
type watched struct {
	first, last time.Time // cordon, uncordon
	most        int       // unavailable at one moment
	reboots     int
	away        []time.Duration   // cordon to uncordon, without what booting takes by itself
	degraded    map[string]string // reason by node
	down        map[string]bool
	cordoned    map[string]time.Time
	boots       map[string]string // boot ID by node
}

// median of the times away.
func (s *watched) median() time.Duration {
	if len(s.away) == 0 {
		return 0
	}
	slices.Sort(s.away)
	return s.away[len(s.away)/2]
}

// watchNodes follows the workers until ctx ends, and then sends what it saw.
func (w *world) watchNodes(t *testing.T, ctx context.Context) <-chan watched {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", w.variable("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	log.SetLogger(logr.Discard())
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	workers := client.HasLabels{"node-role.kubernetes.io/worker"}
	var list corev1.NodeList
	if err := c.List(ctx, &list, workers); err != nil {
		t.Fatal(err)
	}
	s := watched{degraded: map[string]string{}, down: map[string]bool{}, cordoned: map[string]time.Time{}, boots: map[string]string{}}
	for i := range list.Items {
		s.see(&list.Items[i], time.Now())
	}
	done := make(chan watched, 1)
	go func() {
		for version := list.ResourceVersion; ctx.Err() == nil; { // the server ends a watch now and then
			events, err := c.Watch(ctx, &corev1.NodeList{}, workers, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("watch nodes: %v", err)
				}
				break
			}
			for e := range events.ResultChan() {
				if n, ok := e.Object.(*corev1.Node); ok {
					version = n.ResourceVersion
					s.see(n, time.Now())
				}
			}
		}
		done <- s
	}()
	return done
}

// see takes in a Node as it is now.
func (s *watched) see(n *corev1.Node, now time.Time) {
	since, out := s.cordoned[n.Name]
	switch {
	case n.Spec.Unschedulable && !out:
		s.cordoned[n.Name] = now
		if s.first.IsZero() {
			s.first = now
		}
	case !n.Spec.Unschedulable && out:
		delete(s.cordoned, n.Name)
		s.away, s.last = append(s.away, now.Sub(since)-bootDelay), now
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if ready && !n.Spec.Unschedulable {
		delete(s.down, n.Name)
	} else {
		s.down[n.Name] = true
	}
	s.most = max(s.most, len(s.down))
	if n.Annotations["machineconfiguration.openshift.io/state"] == "Degraded" {
		s.degraded[n.Name] = n.Name + ": " + n.Annotations["machineconfiguration.openshift.io/reason"]
	}
	id := n.Status.NodeInfo.BootID
	if was, known := s.boots[n.Name]; known && was != id {
		s.reboots++
	}
	s.boots[n.Name] = id
}
