package backend_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktest "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/sim/backend"
)

func TestFailedSaveKeepsTheOldFileAndStaysDirty(t *testing.T) {
	var mu sync.Mutex
	f := &backend.File{Path: filepath.Join(t.TempDir(), "state")}
	dirty := true
	save := func(body string, fail error) error {
		return f.Save(&mu, &dirty, func() ([]byte, error) { return []byte(body), fail })
	}
	loaded := func() string {
		got := "nothing"
		if err := f.Load(func(b []byte) error { got = string(b); return nil }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := loaded(); got != "nothing" {
		t.Errorf("a missing file decodes %q", got)
	}
	if err := save("one", nil); err != nil || dirty || loaded() != "one" {
		t.Errorf("after a save: %v, dirty %v, %q", err, dirty, loaded())
	}
	if err := save("two", nil); err != nil || loaded() != "one" {
		t.Errorf("a clean state was written: %v, %q", err, loaded())
	}
	dirty = true
	refused := errors.New("no")
	if err := save("three", refused); !errors.Is(err, refused) || !dirty || loaded() != "one" {
		t.Errorf("after a save that failed: %v, dirty %v, %q", err, dirty, loaded())
	}
	entries, err := os.ReadDir(filepath.Dir(f.Path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left beside the file: %v, %v", entries, err)
	}
	gone := &backend.File{Path: filepath.Join(t.TempDir(), "no", "state")}
	if err := gone.Save(&mu, &dirty, func() ([]byte, error) { return nil, nil }); err == nil || !dirty {
		t.Errorf("a folder that is not there: %v, dirty %v", err, dirty)
	}
	if err := f.Load(func([]byte) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a file that does not decode: %v", err)
	}
}

func TestNewsComeInOrderOneAtATime(t *testing.T) {
	n := backend.NewNews[*[]int]()
	ctx, cancel := context.WithCancel(t.Context())
	var got []int
	for i := range 100 {
		n.Add(func(out *[]int) { *out = append(*out, i) })
	}
	n.Add(func(out *[]int) {
		// News may come of news.
		n.Add(func(out *[]int) { *out = append(*out, 100); cancel() })
	})
	n.Run(ctx, &got)
	if len(got) != 101 || !slices.IsSorted(got) {
		t.Errorf("told %v", got)
	}
}

func TestWaitJoinsChangesToOneSave(t *testing.T) {
	clk := clocktest.NewFakeClock(time.Unix(0, 0))
	kick := backend.NewSignal()
	kick.Poke()
	kick.Poke() // never blocks
	if !backend.Wait(t.Context(), clk, time.Hour, kick, false) {
		t.Error("a kick did not wake")
	}
	woken := make(chan bool)
	go func() { woken <- backend.Wait(t.Context(), clk, time.Hour, kick, true) }()
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	kick.Poke()
	select {
	case <-woken:
		t.Error("a change did not join the save that waits")
	case <-time.After(20 * time.Millisecond):
	}
	clk.Step(backend.SaveDelay)
	if !<-woken {
		t.Error("the save's time did not wake")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if backend.Wait(ended, clock.RealClock{}, 0, backend.NewSignal(), false) {
		t.Error("an ended context did not end the wait")
	}
}

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 3: false} {
		if err := backend.CheckVersion(version, 2, "the simulated cloud"); (err == nil) != ok {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
