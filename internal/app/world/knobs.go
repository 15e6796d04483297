package world

import (
	"context"
	"fmt"
	"strings"

	"millwright.io/millwright/internal/sim/arm"
	"millwright.io/millwright/internal/sim/control"
	"millwright.io/millwright/internal/sim/vm"
)

var _ control.Knobs = (*supervisor)(nil)

// errStarting answers knobs that are turned before there is a cloud.
var errStarting = fmt.Errorf("the world is still starting; try again when `millwright status` says Ready")

func (s *supervisor) sim() (*arm.Server, error) {
	if s.status.phaseIs(control.PhaseReady) {
		return s.azure, nil
	}
	return nil, errStarting
}

// VMs implements control.Knobs: what the cloud sold beside what the machine
// does.
func (s *supervisor) VMs(context.Context) ([]control.VM, error) {
	azure, err := s.sim()
	if err != nil {
		return nil, err
	}
	guests := map[string]vm.Record{}
	for _, r := range s.hyper.List() {
		guests[r.UUID] = r
	}
	out := []control.VM{}
	for _, v := range azure.VMs() {
		c := control.VM{Name: v.Name, UUID: v.UUID, Cloud: "azure", Size: v.Size, Zone: v.Zone, IP: v.PrivateIP, State: stateWord(v), CreatedAt: v.CreatedAt}
		if g, ok := guests[v.UUID]; ok {
			c.Boot, c.Root, c.BootID, c.Loopback = string(g.Stage), g.Root, g.BootID, s.hyper.BindIP(g.Number)
		}
		out = append(out, c)
	}
	return out, nil
}

// stateWord is the provisioning state while that moves, else the power state.
func stateWord(v arm.VM) string {
	if v.Provisioning != "Succeeded" || v.Power == "" {
		return v.Provisioning
	}
	return strings.ToUpper(string(v.Power[:1])) + string(v.Power[1:])
}

// StartVM implements control.Knobs.
func (s *supervisor) StartVM(_ context.Context, name string) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	return azure.StartVM(name)
}

// StopVM implements control.Knobs.
func (s *supervisor) StopVM(_ context.Context, name string) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	return azure.StopVM(name)
}

// DeleteVM implements control.Knobs.
func (s *supervisor) DeleteVM(_ context.Context, name string) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	return azure.DeleteVM(name)
}

// Console implements control.Knobs.
func (s *supervisor) Console(_ context.Context, name string) ([]byte, error) {
	if _, err := s.sim(); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range s.hyper.List() {
		if r.Name == name || r.UUID == name {
			return s.hyper.Console(r.UUID)
		}
		names = append(names, r.Name)
	}
	return nil, &control.NotFoundError{Message: "no VM " + name + "; there are: " + strings.Join(names, ", ")}
}

// Quotas implements control.Knobs.
func (s *supervisor) Quotas(context.Context) ([]control.Quota, error) {
	azure, err := s.sim()
	if err != nil {
		return nil, err
	}
	out := []control.Quota{}
	for _, q := range azure.Quotas() {
		out = append(out, control.Quota{Scope: q.Scope, Limit: q.Limit, Used: q.Used})
	}
	return out, nil
}

// SetQuota implements control.Knobs.
func (s *supervisor) SetQuota(_ context.Context, q control.Quota) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	if q.Limit < 0 {
		return fmt.Errorf("limit %d: want 0 or more vCPUs", q.Limit)
	}
	return azure.SetQuota(q.Scope, q.Limit)
}

// Faults implements control.Knobs.
func (s *supervisor) Faults(context.Context) ([]control.Fault, error) {
	azure, err := s.sim()
	if err != nil {
		return nil, err
	}
	out := []control.Fault{}
	for _, f := range azure.Faults() {
		out = append(out, control.Fault{Op: f.Op, Code: f.Code, Status: f.Status, Message: f.Message, Count: f.Count})
	}
	return out, nil
}

// AddFault implements control.Knobs.
func (s *supervisor) AddFault(_ context.Context, f control.Fault) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	return azure.Fail(arm.Fault{Op: f.Op, Code: f.Code, Status: f.Status, Message: f.Message, Count: f.Count})
}

// ClearFaults implements control.Knobs.
func (s *supervisor) ClearFaults(context.Context) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	azure.ClearFaults()
	return nil
}

// SetSlow implements control.Knobs.
func (s *supervisor) SetSlow(_ context.Context, d control.Slow) error {
	azure, err := s.sim()
	if err != nil {
		return err
	}
	return azure.Slow(d.Op, d.Delay)
}
