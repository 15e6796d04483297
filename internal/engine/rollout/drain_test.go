package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
)

const us, other = rollout.CordonedByUs, rollout.CordonedByOther

func TestDecideDrainAnswersWhatAgentsAsk(t *testing.T) {
	begin := plan.BeginDrain{Node: "n", By: us}
	keep := plan.BeginDrain{Node: "n", By: other, Keep: true}
	answer := func(text string, uncordon bool) plan.AnswerDrain {
		return plan.AnswerDrain{Node: "n", Answer: text, Uncordon: uncordon}
	}
	rows := []struct {
		name, why string
		node      rollout.Drainee
		pods      []drain.Pod
		want      []plan.Action
	}{
		{"nothing asked", "both are absent", rollout.Drainee{}, nil, nil},
		{"answered", "both are equal", rollout.Drainee{Desired: "drain-a", Last: "drain-a", Cordoned: true, CordonedBy: us}, nil, nil},
		{"asked", "cordon first", rollout.Drainee{Desired: "drain-a", Last: "uncordon-b"}, nil, []plan.Action{begin}},
		{"cordoned by us, nothing on it", "it is drained", rollout.Drainee{Desired: "drain-a", Cordoned: true, CordonedBy: us}, nil, []plan.Action{answer("drain-a", false)}},
		{"cordoned by us, a pod on it", "the pod goes first", rollout.Drainee{Desired: "drain-a", Cordoned: true, CordonedBy: us}, []drain.Pod{{Namespace: "s", Name: "p", Ready: true}},
			[]plan.Action{plan.EvictPod{Namespace: "s", Name: "p", Grace: -1}}},
		{"cordoned before we came", "it is noted, and drained afterwards", rollout.Drainee{Desired: "drain-a", Last: "uncordon-b", Cordoned: true}, nil, []plan.Action{keep}},
		{"cordoned by a health check", "their note stays", rollout.Drainee{Desired: "drain-a", Cordoned: true, CordonedBy: "machine/x"}, nil, []plan.Action{answer("drain-a", false)}},
		{"another drain of a drained node", "the last answer shows whose cordon it is", rollout.Drainee{Desired: "drain-b", Last: "drain-a", Cordoned: true}, nil, []plan.Action{answer("drain-b", false)}},
		{"uncordon ours", "we made it", rollout.Drainee{Desired: "uncordon-a", Last: "drain-a", Cordoned: true, CordonedBy: us}, nil, []plan.Action{answer("uncordon-a", true)}},
		{"uncordon the original's", "the last answer shows it", rollout.Drainee{Desired: "uncordon-a", Last: "drain-a", Cordoned: true}, nil, []plan.Action{answer("uncordon-a", true)}},
		{"uncordon somebody else's", "nobody undoes it", rollout.Drainee{Desired: "uncordon-a", Last: "drain-a", Cordoned: true, CordonedBy: other}, nil, []plan.Action{answer("uncordon-a", false)}},
		{"uncordon a health check's", "nobody undoes it", rollout.Drainee{Desired: "uncordon-a", Last: "drain-a", Cordoned: true, CordonedBy: "machine/x"}, nil, []plan.Action{answer("uncordon-a", false)}},
		{"uncordon without a drain", "it needed none", rollout.Drainee{Desired: "uncordon-a", Last: "uncordon-b"}, nil, []plan.Action{answer("uncordon-a", true)}},
		{"uncordoned by an admin in between", "the next cordon is theirs", rollout.Drainee{Desired: "drain-a", Last: "drain-a", CordonedBy: us}, nil, []plan.Action{answer("", true)}},
		{"unknown verb", "nobody knows what it means", rollout.Drainee{Desired: "dance-a", Last: ""}, nil, nil},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			r.node.Name = "n"
			d := rollout.DecideDrain(rollout.DrainInput{Now: now, Node: r.node, Pods: r.pods})
			if diff := cmp.Diff(r.want, d.Actions, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", r.why, diff)
			}
		})
	}
	d := rollout.DecideDrain(rollout.DrainInput{Now: now, Node: rollout.Drainee{Name: "n", Desired: "dance-a"}})
	if d.Status.Unknown != "node n: non-recognized drain verb detected dance-a" {
		t.Errorf("unknown verb: %q", d.Status.Unknown)
	}
}

func TestDrainComplainsInTime(t *testing.T) {
	in := rollout.DrainInput{Now: now, Since: now.Add(-time.Hour),
		Node: rollout.Drainee{Name: "n", Desired: "drain-a", Cordoned: true, CordonedBy: us, Started: now},
		Pods: []drain.Pod{{Namespace: "s", Name: "p", Ready: true}}, Refused: []drain.Refusal{{Namespace: "s", Name: "p", Message: "no"}}}
	for _, r := range []struct {
		took       time.Duration
		slow, late bool
	}{{0, false, false}, {10 * time.Minute, false, false}, {10*time.Minute + time.Second, true, false}, {time.Hour + time.Second, true, true}} {
		in.Now = now.Add(r.took)
		d := rollout.DecideDrain(in)
		if d.Status.Slow != r.slow || (d.Status.Late > 0) != r.late || !strings.Contains(d.Status.Blocked, "no") || d.Wake == 0 {
			t.Errorf("after %s: %+v, wake %s", r.took, d.Status, d.Wake)
		}
	}
}

// TestCordonsEndWhereTheyBelong plays agents that ask in turn, and admins who
// cordon and uncordon: no cordon of ours is left at the end, and none of
// theirs, made while the node was idle, is undone.
func TestCordonsEndWhereTheyBelong(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rollout.Drainee{Name: "n"}
		theirs := false
		decide := func() {
			for range 4 {
				for _, a := range rollout.DecideDrain(rollout.DrainInput{Now: now, Node: n}).Actions {
					perform(&n, a)
				}
			}
		}
		for i, ask := range []string{"drain-a", "uncordon-a", "drain-b", "drain-c", "uncordon-c"} {
			idle := i == 0 || i == 2
			switch rapid.IntRange(0, 3).Draw(rt, "admin") {
			case 0:
				if idle && !n.Cordoned {
					theirs = true
				}
				n.Cordoned = true
			case 1:
				n.Cordoned, theirs = false, false
				decide() // it is seen before anything else happens
			}
			n.Desired = ask
			decide()
			if n.Last != ask {
				rt.Fatalf("%s is not answered: %+v", ask, n)
			}
			if strings.HasPrefix(ask, "drain") && !n.Cordoned {
				rt.Fatalf("drained and not cordoned: %+v", n)
			}
		}
		if theirs && !n.Cordoned {
			rt.Fatalf("somebody's cordon was undone: %+v", n)
		}
		if n.Cordoned && n.CordonedBy == us {
			rt.Fatalf("a cordon of ours is left: %+v", n)
		}
	})
}

// perform is what the drain controller writes.
func perform(n *rollout.Drainee, a plan.Action) {
	switch a := a.(type) {
	case plan.BeginDrain:
		n.CordonedBy = a.By
		n.Cordoned = true
	case plan.AnswerDrain:
		if a.Answer != "" {
			n.Last = a.Answer
		}
		if a.Uncordon {
			n.Cordoned = false
			n.CordonedBy = rollout.Forget(n.CordonedBy, n.Last)
		}
	}
}
