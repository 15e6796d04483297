package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/render"
)

// BenchmarkPlan5000Nodes plans a pool of 5,000 nodes.
func BenchmarkPlan5000Nodes(b *testing.B) {
	before := benchCluster(b, "testdata/plan/configs.yaml", 5000)
	ms, err := readManifests([]string{"testdata/plan/new-all.yaml"}, nil, newProgress(os.Stderr))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		after := before.copy()
		if err := after.apply(ms); err != nil {
			b.Fatal(err)
		}
		pl := planner{before: before, after: after, times: defaultEstimates(), drains: newDrains(after, time.Unix(0, 0))}
		if p := pl.plan(""); len(p.Pools[0].Nodes) != 5000 || p.Pools[0].Waves != 5000 {
			b.Fatalf("%d nodes, %d waves", len(p.Pools[0].Nodes), p.Pools[0].Waves)
		}
	}
}

func benchCluster(b *testing.B, file string, nodes int) *cluster {
	b.Helper()
	ms, err := readManifests([]string{file}, nil, newProgress(os.Stderr))
	if err != nil {
		b.Fatal(err)
	}
	c := newCluster()
	if err := c.apply(ms); err != nil {
		b.Fatal(err)
	}
	r, err := c.render(poolWorker, render.Base{})
	if err != nil {
		b.Fatal(err)
	}
	c.put(r.config)
	pool := defaultPool(poolWorker)
	pool.Spec.Configuration.Name = r.Name
	c.put(pool)
	for i := range nodes {
		n := &corev1.Node{}
		n.Name = fmt.Sprintf("w-%d", i)
		n.Labels = map[string]string{labelNodeRole + poolWorker: "", labelZone: fmt.Sprintf("z%d", i%3)}
		n.Annotations = map[string]string{annoCurrent: r.Name, annoState: "Done"}
		c.put(n)
	}
	return c
}

// BenchmarkReadManifests reads trees of many files.
func BenchmarkReadManifests(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			mc := "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 99-%d, labels: {machineconfiguration.openshift.io/role: worker}}\nspec: {config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/%[1]d, contents: {source: \"data:,x\"}}]}}}\n"
			for i := range n {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), fmt.Appendf(nil, mc, i), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				ms, err := readManifests([]string{dir}, nil, newProgress(os.Stderr))
				if err != nil || len(ms) != n {
					b.Fatal(len(ms), err)
				}
			}
		})
	}
}

// BenchmarkHash10MB reads and hashes a config of 10 MB.
func BenchmarkHash10MB(b *testing.B) {
	mc := mcfgv1.MachineConfig{}
	mc.APIVersion, mc.Kind, mc.Name = groupMachineConfig+"/v1", "MachineConfig", "rendered-worker-x"
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,%s"}}]}}`, strings.Repeat("a", 10<<20))
	file := filepath.Join(b.TempDir(), "big.json")
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	if err := output("json").print(f, &mc, nil); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hashFile(file, "", nil, newProgress(os.Stderr)); err != nil {
			b.Fatal(err)
		}
	}
}
