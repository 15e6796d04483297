package journal

import (
	"context"
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

const (
	oldConfig = `{"ignition":{"version":"3.5.0"},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["key one"]}]},
		"storage":{"files":[
			{"path":"/etc/a","mode":420,"contents":{"source":"data:,old"}},
			{"path":"/etc/gone","mode":420,"contents":{"source":"data:,old"}},
			{"path":"/etc/vendor.conf","mode":420,"contents":{"source":"data:,ours"}}]},
		"systemd":{"units":[
			{"name":"demo.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
			{"name":"kubelet.service","dropins":[{"name":"10-a.conf","contents":"[Service]\n"}]}]}}`
	newConfig = `{"ignition":{"version":"3.5.0"},
		"passwd":{"users":[{"name":"core","passwordHash":"$6$abc","sshAuthorizedKeys":["key one","key two"]}]},
		"storage":{"files":[
			{"path":"/etc/a","mode":384,"contents":{"source":"data:,new"}},
			{"path":"/etc/deep/er/b","mode":420,"contents":{"source":"data:,b"}},
			{"path":"/var/c","mode":493,"contents":{"source":"data:,c"}}]},
		"systemd":{"units":[
			{"name":"demo.service","enabled":true,"contents":"[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=basic.target\n"},
			{"name":"fresh.service","enabled":true,"contents":"[Install]\nRequiredBy=basic.target\n"},
			{"name":"noisy.service","mask":true},
			{"name":"kubelet.service","dropins":[{"name":"20-b.conf","contents":"[Service]\n"}]}]}}`
)

func spec(raw, image string, arguments ...string) mcfgv1.MachineConfigSpec {
	return mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}, OSImageURL: image, KernelArguments: arguments}
}

func plan(t *testing.T, h host.Host, cur, des mcfgv1.MachineConfigSpec, force bool, actions ...disruption.Action) transition.Planned {
	t.Helper()
	ctx := context.Background()
	facts, err := h.Facts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	in := transition.Input{Current: cur, Desired: des, Facts: facts, Actions: actions, Force: force,
		Records: []transition.Record{{Path: "/etc/machine-config-daemon/currentconfig", Body: []byte(des.OSImageURL), Mode: 0o644}}}
	refs, err := transition.Touches(in)
	if err != nil {
		t.Fatal(err)
	}
	if in.Live, in.Blobs, err = h.Observe(ctx, refs); err != nil {
		t.Fatal(err)
	}
	p, err := transition.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Refused) > 0 {
		t.Fatalf("refused: %v", p.Refused)
	}
	return p
}

// machine is a host that runs the old config.
func machine(t *testing.T) *host.Memory {
	t.Helper()
	m := host.NewMemory(host.MemoryOptions{Image: "image-0", Arguments: []string{"quiet"}})
	if err := m.Files().Replace("/etc/vendor.conf", []byte("vendor's"), host.Attr{Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	p := plan(t, m, mcfgv1.MachineConfigSpec{}, spec(oldConfig, "image-1", "a=1"), true, disruption.Action{Kind: disruption.Reboot})
	j, err := Open(m)
	if err != nil {
		t.Fatal(err)
	}
	out, err := j.Run(context.Background(), Change{To: "old"}, p)
	if err != nil || out.Kind != RebootPending {
		t.Fatalf("got %+v, %v; want a pending reboot", out, err)
	}
	m = m.Boot(false, nil)
	return settle(t, m, 1)
}

// settle restarts the agent, and the machine where a reboot is asked for, at most
// that often, until nothing is under way.
func settle(t *testing.T, m *host.Memory, restarts int) *host.Memory {
	t.Helper()
	for n := 0; ; n++ {
		j, err := Open(m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := j.Resume(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case out.Kind == RebootPending && n < restarts:
			m = m.Boot(false, nil)
		case out.Kind == Stuck || out.Kind == RebootPending:
			t.Fatalf("after %d restarts: %+v", n, out)
		default:
			return m
		}
	}
}

// try runs a change with a fault and tells whether the process survived.
func try(m *host.Memory, c Change, p transition.Planned) (out Outcome, killed bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(host.Killed); !ok {
				panic(r)
			}
			killed = true
		}
	}()
	j, err := Open(m)
	if err != nil {
		panic(err)
	}
	out, err = j.Run(context.Background(), c, p)
	if err != nil {
		panic(err)
	}
	return out, false
}

// kept are the journal's own files, which differ.
var kept = []string{Dir, "/tmp", "/run"}

// TestCrashMatrix kills the process, cuts the power, fails and fills the disk at
// every single operation of a change that touches everything, and asks for the old
// or the new state each time, with nothing left between.
func TestCrashMatrix(t *testing.T) {
	reboot := []disruption.Action{{Kind: disruption.Reboot}}
	services := []disruption.Action{{Kind: disruption.DaemonReload}, {Kind: disruption.Restart, Service: "crio.service"}}
	for _, change := range []struct {
		name    string
		des     mcfgv1.MachineConfigSpec
		actions []disruption.Action
	}{
		{"everything, with a reboot", spec(newConfig, "image-2", "b=2", "a=1"), reboot},
		{"files and units, with a restart", spec(newConfig, "image-1", "a=1"), services},
	} {
		base := machine(t)
		old := base.Tree(kept...)
		p := plan(t, base, spec(oldConfig, "image-1", "a=1"), change.des, false, change.actions...)
		fault := &host.Faulty{}
		whole := base.Restart(fault)
		if out, _ := try(whole, Change{From: "old", To: "new"}, p); out.Kind != Completed && out.Kind != RebootPending {
			t.Fatalf("%s: without faults: %+v", change.name, out)
		}
		fresh := settle(t, whole.Restart(nil), 1).Tree(kept...)
		if fresh == old {
			t.Fatalf("%s: nothing changed", change.name)
		}
		t.Logf("%s: %d steps, %d operations", change.name, len(p.Steps), fault.Ops)
		for _, f := range []struct {
			name     string
			fault    host.Fault
			powerCut bool
		}{{"killed", host.Kill, false}, {"power cut", host.Kill, true}, {"torn and killed", host.Torn, false}, {"torn and power cut", host.Torn, true}, {"failing", host.Fail, false}, {"disk full", host.NoSpace, false}} {
			ends := map[string]int{}
			for at := 1; at <= fault.Ops; at++ {
				ends[crash(t, change.name+", "+f.name, change.des, change.actions, at, f.fault, f.powerCut, old, fresh)]++
			}
			t.Logf("%s, %s: %d ended old, %d new", change.name, f.name, ends["old"], ends["new"])
		}
	}
}

// crash is one cell of the matrix.
func crash(t *testing.T, name string, des mcfgv1.MachineConfigSpec, actions []disruption.Action, at int, kind host.Fault, powerCut bool, old, fresh string) string {
	t.Helper()
	m := machine(t)
	p := plan(t, m, spec(oldConfig, "image-1", "a=1"), des, false, actions...)
	fault := &host.Faulty{At: at, Fault: kind}
	m = m.Restart(fault)
	out, killed := try(m, Change{From: "old", To: "new"}, p)
	switch {
	case powerCut:
		m = m.Boot(true, nil)
	case killed, out.Kind == Stuck, out.Kind == RebootPending:
		fault.Free()
		m = m.Restart(nil)
	}
	m = settle(t, m, 2)
	got := m.Tree(kept...)
	switch got {
	case old:
		return "old"
	case fresh:
		return "new"
	}
	t.Fatalf("%s at operation %d (%+v): neither old nor new:\n%s", name, at, out, difference(old, fresh, got))
	return ""
}

// difference shows the lines of got that neither state has, and those it lacks.
func difference(old, fresh, got string) string {
	var b strings.Builder
	in := func(line, tree string) bool { return strings.Contains("\n"+tree, "\n"+line+"\n") }
	for line := range strings.Lines(got) {
		line = strings.TrimSuffix(line, "\n")
		fmt.Fprintf(&b, "old:%-5v new:%-5v %s\n", in(line, old), in(line, fresh), line)
	}
	return b.String()
}
