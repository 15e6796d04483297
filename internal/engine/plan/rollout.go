package plan

// SetDesiredConfig asks a Node's agent for a config. A Node that is gone needs
// none.
type SetDesiredConfig struct{ Node, Config string }

func (SetDesiredConfig) isAction()       {}
func (SetDesiredConfig) isObjectAction() {}
func (a SetDesiredConfig) String() string {
	return "set desired config of node " + a.Node + " to " + a.Config
}
