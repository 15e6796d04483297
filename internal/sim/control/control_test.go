package control_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/sim/control"
)

// knobs remembers what was turned.
type knobs struct {
	turned []any
	fail   error
}

func (k *knobs) turn(v ...any) error { k.turned = append(k.turned, v...); return k.fail }

func (k *knobs) Status(context.Context) control.Status {
	return control.Status{Phase: control.PhaseReady, PID: 7}
}
func (k *knobs) VMs(context.Context) ([]control.VM, error) {
	return []control.VM{{Name: "a/b", State: "Running"}}, k.fail
}
func (k *knobs) StartVM(_ context.Context, n string) error  { return k.turn("start", n) }
func (k *knobs) StopVM(_ context.Context, n string) error   { return k.turn("stop", n) }
func (k *knobs) DeleteVM(_ context.Context, n string) error { return k.turn("delete", n) }
func (k *knobs) Console(_ context.Context, n string) ([]byte, error) {
	return []byte("console of " + n), k.fail
}
func (k *knobs) Quotas(context.Context) ([]control.Quota, error) {
	return []control.Quota{{Scope: "cores", Limit: 4}}, k.fail
}
func (k *knobs) SetQuota(_ context.Context, q control.Quota) error { return k.turn(q) }
func (k *knobs) Faults(context.Context) ([]control.Fault, error) {
	return []control.Fault{{Op: "vm.put", Count: -1}}, k.fail
}
func (k *knobs) AddFault(_ context.Context, f control.Fault) error { return k.turn(f) }
func (k *knobs) ClearFaults(context.Context) error                 { return k.turn("clear") }
func (k *knobs) SetSlow(_ context.Context, s control.Slow) error   { return k.turn(s) }

func serve(t *testing.T, k control.Knobs) *control.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: control.Handler(k), ReadHeaderTimeout: time.Second}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return control.NewClient(socket)
}

func TestKnobsTravel(t *testing.T) {
	k := &knobs{}
	c := serve(t, k)
	ctx := t.Context()
	for _, err := range []error{
		c.StartVM(ctx, "a/b"), c.StopVM(ctx, "a b"), c.DeleteVM(ctx, "ä"), c.SetQuota(ctx, control.Quota{Scope: "cores", Limit: 4}),
		c.AddFault(ctx, control.Fault{Op: "vm.put", Code: "X", Count: 2}), c.ClearFaults(ctx), c.SetSlow(ctx, control.Slow{Op: "vm.put", Delay: time.Second}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []any{"start", "a/b", "stop", "a b", "delete", "ä", control.Quota{Scope: "cores", Limit: 4},
		control.Fault{Op: "vm.put", Code: "X", Count: 2}, "clear", control.Slow{Op: "vm.put", Delay: time.Second}}
	if diff := cmp.Diff(want, k.turned); diff != "" {
		t.Errorf("turned (-want +got):\n%s", diff)
	}
	if s, err := c.Ping(ctx); err != nil || s.PID != 7 {
		t.Errorf("got %+v, %v; want PID 7", s, err)
	}
	if v, err := c.VMs(ctx); err != nil || len(v) != 1 || v[0].Name != "a/b" {
		t.Errorf("got %+v, %v; want one machine", v, err)
	}
	if b, err := c.Console(ctx, "x"); err != nil || string(b) != "console of x" {
		t.Errorf("got %q, %v; want the console", b, err)
	}
	if q, err := c.Quotas(ctx); err != nil || len(q) != 1 {
		t.Errorf("got %+v, %v; want one quota", q, err)
	}
	if f, err := c.Faults(ctx); err != nil || len(f) != 1 {
		t.Errorf("got %+v, %v; want one fault", f, err)
	}
}

func TestErrorsKeepTheirWords(t *testing.T) {
	k := &knobs{fail: &control.NotFoundError{Message: "no VM x; there are: a"}}
	err := serve(t, k).StartVM(t.Context(), "x")
	var missing *control.NotFoundError
	if !errors.As(err, &missing) || missing.Message != "no VM x; there are: a" {
		t.Errorf("got %#v, want the same NotFoundError", err)
	}
	if _, err := control.NewClient(filepath.Join(t.TempDir(), "none")).Ping(t.Context()); !errors.Is(err, control.ErrNoWorld) {
		t.Errorf("got %v, want ErrNoWorld", err)
	}
}
