package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/journal"
)

// Log takes the agent's lines, word for word.
type Log interface {
	Infof(format string, args ...any)
	Errorf(format string, args ...any)
}

// Config is what an agent needs.
type Config struct {
	Node    string
	Host    host.Host
	Cluster Cluster
	Clock   clock.WithTicker
	Log     Log
	Metrics *Metrics // nil: none
}

// rounds bounds the questions that one decision may ask.
const rounds = 16

// again is how soon a step is followed by the next when there is more to do.
const again = time.Millisecond

// Agent is the agent of one node. Step is not safe for concurrent use.
type Agent struct {
	Config
	journal *journal.Journal
	booting bool
	// rebooting tells that a reboot was asked for and nothing else is to be done.
	rebooting bool
	rebooted  bool   // the machine came back from a reboot that a change asked for
	failed    string // why the last change was taken back
	// node is what the API server had after the last write, until the cache shows it.
	node *corev1.Node

	// guarding names the config whose files are watched, and unguard ends that.
	guarding string
	unguard  func()

	mu      sync.Mutex
	drifted bool   // something changed on the disk
	poke    func() // wakes the loop
}

// New returns an agent that has done nothing yet.
func New(c Config) *Agent {
	return &Agent{Config: c, booting: true, poke: func() {}}
}

// situation is one look at everything.
type situation struct {
	node  *corev1.Node
	facts transition.Facts
	disk  disk
	pool  poolSettings
	in    node.Input
	later map[string]*string // annotations that go with the step's next write
}

// note leaves annotations to the step's next write of the Node: each write of a Node
// is one for the API server, for all who watch Nodes, and a conflict for who updates.
func (s *situation) note(set map[string]*string) {
	if s.later == nil {
		s.later = map[string]*string{}
	}
	maps.Copy(s.later, set)
}

// Step looks, decides and acts once. It returns when to look again at the latest; 0
// waits for a change. An error is one of the API server or the host: the step is
// safe to repeat.
func (a *Agent) Step(ctx context.Context) (time.Duration, error) {
	if a.rebooting {
		a.Log.Infof("Node %s is queued for a reboot, skipping sync.", a.Config.Node)
		return 0, nil
	}
	if a.journal == nil {
		if wake, err := a.resume(ctx); err != nil || wake > 0 || a.rebooting {
			return wake, err
		}
	}
	s, err := a.look(ctx)
	if err != nil {
		return 0, err
	}
	if s == nil {
		return 0, nil // the Node is gone, or not there yet
	}
	if err := a.syncCertificates(ctx, s); err != nil {
		return 0, err
	}
	wake, err := a.proceed(ctx, s)
	return wake, errors.Join(err, a.annotate(ctx, s, nil))
}

// proceed decides and acts.
func (a *Agent) proceed(ctx context.Context, s *situation) (time.Duration, error) {
	d, err := a.decide(ctx, s)
	if err != nil {
		return 0, err
	}
	if err := a.answer(ctx, s); err != nil {
		return 0, err
	}
	return a.act(ctx, s, d)
}

// resume ends what an earlier life left half done, before anything else.
func (a *Agent) resume(ctx context.Context) (time.Duration, error) {
	j, err := journal.Open(a.Host)
	if err != nil {
		var version *journal.VersionError
		if errors.As(err, &version) {
			return time.Minute, a.stop(ctx, err)
		}
		return 0, err
	}
	if j.Corrupt != "" {
		a.Log.Errorf("Moved an unreadable journal aside: %s", j.Corrupt)
	}
	j.BeforeReboot = a.beforeReboot
	out, err := j.Resume(ctx)
	if err != nil {
		return 0, err
	}
	switch out.Kind {
	case journal.Stuck:
		return time.Minute, a.stop(ctx, fmt.Errorf("the change to %s is stuck half-way: %s", out.Change.To, out.Cause))
	case journal.RebootPending:
		a.rebooting = true
	case journal.RolledBack:
		a.Log.Errorf("Took the change to %s back: %s", out.Change.To, out.Cause)
		a.failed = out.Cause
	case journal.Completed:
		a.Log.Infof("Completed the change to %s", out.Change.To)
		a.rebooted = out.Rebooted
	case journal.Idle:
	}
	a.journal = j
	return 0, nil
}

// stop tells that nothing can be done without a person. It says so once.
func (a *Agent) stop(ctx context.Context, cause error) error {
	state, reason := node.Degraded, node.Cut(cause.Error())
	a.Log.Errorf("Marking Degraded due to: %q", reason)
	n, err := a.Cluster.Node(ctx)
	if err != nil {
		return fmt.Errorf("read own node: %w", err)
	}
	if n == nil || n.Annotations[node.State] == state && n.Annotations[node.Reason] == reason {
		return nil
	}
	_, err = a.Cluster.Annotate(ctx, map[string]*string{node.State: &state, node.Reason: &reason})
	return err
}

// look gathers what a decision needs; nil when there is no Node.
func (a *Agent) look(ctx context.Context) (*situation, error) {
	n, err := a.Cluster.Node(ctx)
	if err != nil {
		return nil, fmt.Errorf("read own node: %w", err)
	}
	if n == nil || n.DeletionTimestamp != nil {
		return nil, nil
	}
	n = newest(n, a.node)
	s := &situation{node: n}
	if s.facts, err = a.Host.Facts(ctx); err != nil {
		return nil, fmt.Errorf("look at the host: %w", err)
	}
	if s.disk, err = a.readDisk(); err != nil {
		return nil, err
	}
	s.in = node.Input{
		Node: a.Config.Node, Annotations: n.Annotations, Bootstrap: s.disk.bootstrap, Disk: s.disk.config, DiskError: s.disk.problem,
		Known: map[string]*node.Config{}, Checked: map[string][]transition.Difference{},
		Booting: a.booting, Force: s.disk.force, SelfHeal: true, Failed: a.failed, Facts: s.facts,
	}
	return s, nil
}

// newest is the Node as it is after our own last write.
func newest(cached, written *corev1.Node) *corev1.Node {
	if written == nil || written.UID != cached.UID || written.ResourceVersion == cached.ResourceVersion {
		return cached
	}
	if older(cached.ResourceVersion, written.ResourceVersion) {
		return written
	}
	return cached
}

// older compares two resource versions of one object; what cannot be read is not
// older.
func older(a, b string) bool {
	var x, y uint64
	if _, err := fmt.Sscan(a, &x); err != nil {
		return false
	}
	if _, err := fmt.Sscan(b, &y); err != nil {
		return false
	}
	return x < y
}

// decide answers the questions of engine/node until it has none left.
func (a *Agent) decide(ctx context.Context, s *situation) (node.Decision, error) {
	if err := a.settings(ctx, s); err != nil {
		return node.Decision{}, err
	}
	a.checkDrift(ctx, s)
	for range rounds {
		d := node.Decide(s.in)
		switch {
		case d.Fetch != "":
			mc, err := a.Cluster.Config(ctx, d.Fetch)
			if err != nil {
				return d, fmt.Errorf("read MachineConfig %s: %w", d.Fetch, err)
			}
			s.in.Known[d.Fetch] = configOf(mc)
		case d.Check != "":
			list, err := a.compareAsked(ctx, s, d.Check)
			if err != nil {
				return d, err
			}
			s.in.Checked[d.Check] = list
		default:
			return d, nil
		}
	}
	return node.Decision{}, fmt.Errorf("decide about node %s: still undecided after %d questions", a.Config.Node, rounds)
}

func configOf(mc *mcfgv1.MachineConfig) *node.Config {
	if mc == nil {
		return nil
	}
	return &node.Config{Name: mc.Name, Spec: mc.Spec}
}

// compare tells how the disk differs from a config that is known.
func (a *Agent) compare(ctx context.Context, s *situation, name string, scope transition.Scope) ([]transition.Difference, error) {
	c := s.in.Known[name]
	if s.in.Disk != nil && s.in.Disk.Name == name {
		c = s.in.Disk
	}
	if c == nil {
		return nil, fmt.Errorf("compare the disk with %s: the config is not known", name)
	}
	refs, err := transition.Watched(c.Spec, s.facts)
	if err != nil {
		return nil, fmt.Errorf("read config %s: %w", name, err)
	}
	live, _, err := a.Host.Observe(ctx, refs)
	if err != nil {
		return nil, fmt.Errorf("compare the disk with %s: %w", name, err)
	}
	list, err := transition.Differences(c.Spec, s.facts, live, scope)
	if err != nil {
		return nil, fmt.Errorf("compare the disk with %s: %w", name, err)
	}
	if list == nil {
		list = []transition.Difference{}
	}
	return list, nil
}

// act does what was decided, first what users see, then the host's part.
func (a *Agent) act(ctx context.Context, s *situation, d node.Decision) (time.Duration, error) {
	for _, n := range d.Notes {
		a.Log.Infof("%s", n.Message)
	}
	if d.Action == node.Nothing && d.Change.Drain {
		// No pod has to go for a config that this host cannot have.
		if refused, err := a.foresee(ctx, s, d.Change); refused || err != nil {
			return time.Minute, err
		}
	}
	var unitsErr error
	if d.Settled {
		unitsErr = a.publishUnits(ctx, s)
	}
	if err := a.annotate(ctx, s, d.Set); err != nil {
		return 0, err
	}
	a.told(s)
	for _, e := range d.Events {
		a.Cluster.Event(ctx, s.node, string(e.Type), e.Reason, e.Message)
	}
	a.Metrics.state(s.node.Annotations, d.Differences)
	a.conditions(ctx, s, d)
	if d.Watch != "" {
		a.guard(ctx, s, d.Watch)
	}
	if d.Settled {
		if a.booting {
			a.booting = false
			a.Log.Infof("In desired config %s", d.Watch)
		}
		a.failed = ""
		a.Metrics.drift(false, a.Clock.Now())
		a.clearReapplied()
		return d.Wake, unitsErr
	}
	switch d.Action {
	case node.Adopt:
		return again, a.adopt(ctx, s, d.Change.To.Name)
	case node.Apply:
		return a.apply(ctx, s, d.Change)
	case node.Nothing:
	}
	return d.Wake, nil
}

// annotate writes what differs, with what was left for this write, and keeps what the
// API server then has.
func (a *Agent) annotate(ctx context.Context, s *situation, set map[string]*string) error {
	if len(s.later) > 0 {
		merged := s.later
		s.later = nil
		maps.Copy(merged, set)
		set = merged
	}
	if len(set) == 0 {
		return nil
	}
	n, err := a.Cluster.Annotate(ctx, set)
	if err != nil {
		return fmt.Errorf("write annotations of node %s: %w", a.Config.Node, err)
	}
	if n != nil {
		a.node, s.node, s.in.Annotations = n, n, n.Annotations
	}
	return nil
}

// told logs the state that the original logs at each sync.
func (a *Agent) told(s *situation) {
	reason := s.node.Annotations[node.Reason]
	switch s.node.Annotations[node.State] {
	case node.Degraded:
		a.Log.Errorf("Marking Degraded due to: %q", reason)
	case node.Unreconcilable:
		a.Log.Errorf("Marking Unreconcilable due to: %q", reason)
	}
}
