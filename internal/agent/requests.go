package agent

import (
	"context"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
)

// taken ends a request for recovery when the host's part begins: it is one try.
func (a *Agent) taken(ctx context.Context, s *situation) error {
	name, asked := s.node.Annotations[node.RecoverRequest]
	if !asked {
		return nil
	}
	a.Log.Infof("Recovering node %s, as it was asked to", a.Config.Node)
	return a.annotate(ctx, s, map[string]*string{node.RecoverRequest: nil, node.Recovering: &name})
}

// compareAsked compares the disk with a config that a decision asks about. One that
// cannot be read and is only to be adopted keeps nobody from anything else.
func (a *Agent) compareAsked(ctx context.Context, s *situation, name string) ([]transition.Difference, error) {
	list, err := a.compare(ctx, s, name, transition.Everything)
	if err != nil && s.in.Annotations[node.AdoptRequest] == name && s.in.Annotations[node.DesiredConfig] != name {
		return []transition.Difference{{Key: name, Reason: err.Error()}}, nil
	}
	return list, err
}
