package plan

// SetDesiredConfig asks a Node's agent for a config. A Node that is gone needs
// none.
type SetDesiredConfig struct{ Node, Config string }

func (SetDesiredConfig) isAction()       {}
func (SetDesiredConfig) isObjectAction() {}
func (a SetDesiredConfig) String() string {
	return "set desired config of node " + a.Node + " to " + a.Config
}

type (
	// BeginDrain cordons the decided Node in By's name, or, if Keep is set,
	// only notes that the cordon it finds is somebody else's.
	BeginDrain struct {
		Node, By string
		Keep     bool
	}
	// AnswerDrain tells the decided Node's agent that what it asked for is
	// done; empty: there is nothing to tell. Uncordon takes back a cordon of
	// ours with it.
	AnswerDrain struct {
		Node, Answer string
		Uncordon     bool
	}
)

func (BeginDrain) isAction()       {}
func (BeginDrain) isObjectAction() {}
func (a BeginDrain) String() string {
	if a.Keep {
		return "keep somebody else's cordon of node " + a.Node
	}
	return "cordon node " + a.Node + " to drain it"
}
func (AnswerDrain) isAction()       {}
func (AnswerDrain) isObjectAction() {}
func (a AnswerDrain) String() string {
	switch {
	case !a.Uncordon:
		return "answer " + a.Answer + " to node " + a.Node
	case a.Answer == "":
		return "uncordon node " + a.Node
	}
	return "uncordon node " + a.Node + " and answer " + a.Answer
}
