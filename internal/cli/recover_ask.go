package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
)

// Annotations of a Node by which its agent tells how its disk differs from a config.
const (
	annoVerify   = "millwright.io/verify"
	annoVerified = "millwright.io/verified"
)

// verdict is an agent's answer.
type verdict struct {
	Config      string                  `json:"config"`
	Differences []transition.Difference `json:"differences"`
	Error       string                  `json:"error,omitempty"`
}

// errNoAnswer is an agent that says nothing in time.
var errNoAnswer = errors.New("its agent does not answer")

// operator is a person at work on a cluster: it asks agents and waits for them.
type operator struct {
	client.Client
	out     io.Writer     // what happens
	answers time.Duration // how long an agent may take to answer
	limit   time.Duration // how long an agent may take to do what it was asked for
}

// Intervals between two looks at a Node: the second one once it takes long.
const (
	soon  = 100 * time.Millisecond
	later = time.Second
)

// until looks at a Node until done says so. errNoAnswer: that took longer than limit.
func (o *operator) until(ctx context.Context, name string, limit time.Duration, done func(*corev1.Node) bool) (*corev1.Node, error) {
	began := time.Now()
	for {
		n, err := o.node(ctx, name)
		if err != nil {
			return nil, err
		}
		if done(n) {
			return n, nil
		}
		took := time.Since(began)
		if took > limit {
			return n, errNoAnswer
		}
		pause := soon
		if took > 2*later {
			pause = later
		}
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (o *operator) node(ctx context.Context, name string) (*corev1.Node, error) {
	var n corev1.Node
	err := o.Get(ctx, client.ObjectKey{Name: name}, &n)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no node %s", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return &n, nil
}

// annotate merges annotations into a Node; nil removes one.
func (o *operator) annotate(ctx context.Context, name string, set map[string]*string) error {
	return o.patchNode(ctx, name, map[string]any{"metadata": map[string]any{"annotations": set}})
}

func (o *operator) patchNode(ctx context.Context, name string, patch any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode the patch of node %s: %w", name, err)
	}
	n := &corev1.Node{}
	n.Name = name
	if err := o.Patch(ctx, n, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("write to node %s: %w", name, err)
	}
	return nil
}

// verify asks a node's agent how its disk differs from a config, and takes question
// and answer away again.
func (o *operator) verify(ctx context.Context, name, config string) (verdict, error) {
	if err := o.annotate(ctx, name, map[string]*string{annoVerify: &config, annoVerified: nil}); err != nil {
		return verdict{}, err
	}
	defer func() {
		_ = o.annotate(context.WithoutCancel(ctx), name, map[string]*string{annoVerify: nil, annoVerified: nil}) // it is in nobody's way
	}()
	var v verdict
	_, err := o.until(ctx, name, o.answers, func(n *corev1.Node) bool {
		v = verdict{}
		return json.Unmarshal([]byte(n.Annotations[annoVerified]), &v) == nil && v.Config == config
	})
	if errors.Is(err, errNoAnswer) {
		return v, fmt.Errorf("node %s: %w after %s: look at its pod machine-config-daemon in %s, and whether the machine runs", name, err, o.answers, namespaceMCO)
	}
	return v, err
}

// reasons are the differences in words.
func (v verdict) reasons() []string {
	if v.Error != "" {
		return []string{v.Error}
	}
	out := make([]string, 0, len(v.Differences))
	for _, d := range v.Differences {
		out = append(out, d.Reason)
	}
	return out
}

// settle waits until a node's agent is done with what it was asked for, telling each
// new step.
func (o *operator) settle(ctx context.Context, name, goal string) (*corev1.Node, error) {
	told := ""
	n, err := o.until(ctx, name, o.limit, func(n *corev1.Node) bool {
		r := nodeReport(n, nil, goal)
		text := r.Step
		if r.WaitsFor != "" && r.Step != StepBroken {
			text += ", waits for " + r.WaitsFor
		}
		asked := node.Asked(n.Annotations) || n.Annotations[node.Recovering] != ""
		if asked && text != told && r.Step != StepBroken && r.Step != StepQueued {
			told = text
			o.say("  %s: %s", name, text)
		}
		return !asked
	})
	if errors.Is(err, errNoAnswer) {
		return n, fmt.Errorf("node %s: not done after %s; the request stays, see `millwright status -w`", name, o.limit)
	}
	return n, err
}

func (o *operator) say(format string, args ...any) { _, _ = fmt.Fprintf(o.out, format+"\n", args...) }

// agreed asks a person for a yes.
func agreed(in io.Reader, out io.Writer) bool {
	_, _ = fmt.Fprint(out, "Go on? [y/N] ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if f, ok := in.(*os.File); err != nil || !ok || !interactive(f) {
		_, _ = fmt.Fprintln(out) // nobody's Enter ended the line
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
