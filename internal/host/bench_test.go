package host

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"millwright.io/millwright/internal/engine/transition"
)

// steps2000 writes 2,000 files of 1 KiB into 40 folders.
func steps2000() ([]transition.Step, transition.Blobs) {
	var steps []transition.Step
	contents := transition.Blobs{}
	for i := range 2000 {
		body := fmt.Appendf(nil, "%01024d", i)
		d := transition.Digest(body)
		contents[d] = body
		steps = append(steps, fileStep(fmt.Sprintf("/etc/bench/%d/file-%d.conf", i%40, i), transition.State{Type: transition.File, Digest: d, Mode: 0o644}))
	}
	return steps, contents
}

func apply(b *testing.B, h Host, steps []transition.Step, contents transition.Blobs) {
	b.Helper()
	for _, s := range steps {
		if err := h.Perform(context.Background(), s, contents); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApply2000FilesRooted(b *testing.B) {
	steps, contents := steps2000()
	b.ReportAllocs()
	for b.Loop() {
		h, err := New(b.TempDir(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		apply(b, h, steps, contents)
	}
}

// What is there already costs a look.
func BenchmarkApply2000FilesThatAreThere(b *testing.B) {
	steps, contents := steps2000()
	h, err := New(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	apply(b, h, steps, contents)
	b.ReportAllocs()
	for b.Loop() {
		apply(b, h, steps, contents)
	}
}

func BenchmarkApply2000FilesInMemory(b *testing.B) {
	steps, contents := steps2000()
	b.ReportAllocs()
	for b.Loop() {
		apply(b, NewMemory(MemoryOptions{}), steps, contents)
	}
}

// BenchmarkHollowMachine tells what one machine in memory weighs.
func BenchmarkHollowMachine(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []*Memory
	b.ReportAllocs()
	for b.Loop() {
		all = append(all, NewMemory(MemoryOptions{Image: "image"}))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(all)), "heap-B/machine")
	runtime.KeepAlive(all)
}
