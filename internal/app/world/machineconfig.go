package world

import (
	"context"
	"fmt"

	"millwright.io/millwright/internal/operator"
	simworld "millwright.io/millwright/internal/sim/world"
	"millwright.io/millwright/internal/version"
)

// seedMachineConfig makes what an installer leaves of Machine Config: objects
// first, then the workloads that read them. Its definitions have to be served,
// since a controller that starts without them looks again only much later.
func (s *supervisor) seedMachineConfig(ctx context.Context) error {
	objects, err := simworld.MachineConfig(s.params, s.plane.CA().CertPEM)
	if err != nil {
		return err
	}
	workloads, err := operator.MachineConfigObjects(operator.Params{Version: version.Version, InfraID: s.params.InfraID, APIServer: s.params.APIServer})
	if err != nil {
		return err
	}
	if err := s.createAll(ctx, append(objects, workloads...)); err != nil {
		return fmt.Errorf("make Machine Config's objects: %w", err)
	}
	return nil
}
