package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExplainState says in a word how an explained object fares.
type ExplainState string

// States.
const (
	StateFine        ExplainState = "Fine"        // it is what it should be
	StateProgressing ExplainState = "Progressing" // on its way, nothing to do
	StateStuck       ExplainState = "Stuck"       // it waits for something that may need a hand
)

// Explanation is what explain answers about one object.
type Explanation struct {
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name"`
	State     ExplainState `json:"state"`
	// Cause is a word for the kind of trouble, e.g. Quota; empty when there
	// is none.
	Cause string `json:"cause,omitempty"`
	// Why is one paragraph for people.
	Why      string     `json:"why"`
	Evidence []Evidence `json:"evidence,omitempty"`
	Next     []NextStep `json:"next,omitempty"`
	Notes    []string   `json:"notes,omitempty"` // what could not be read
}

// Evidence is one thing that was seen.
type Evidence struct {
	// What names the source: "condition Drained=False (DrainError)", "event
	// FailedCreate", "pod shop/web-0", "difference".
	What string `json:"what"`
	Text string `json:"text,omitempty"`
	// Since is when it began; nil: not known.
	Since *time.Time `json:"since,omitempty"`
}

// NextStep is what to do now.
type NextStep struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}

// Explainer knows why objects of one kind are stuck.
type Explainer struct {
	Kind  string // e.g. Machine
	Group string // of the API; empty: core
	// Names are what people call the kind: plural, singular and short names,
	// in lower case, without the group.
	Names []string
	// Namespace is used when none is given; empty: the kind has none.
	Namespace string
	// Explain looks at one object. An object that is not there is an error as
	// the API server words it. It reads only.
	Explain func(ctx context.Context, in ExplainInput) (Explanation, error)
}

// ExplainInput is what an explainer works with.
type ExplainInput struct {
	// Reader shows a cluster or a directory of manifests. Lists may select by
	// namespace and labels, Pods by spec.nodeName, Events by
	// involvedObject.name.
	Reader client.Reader
	Key    client.ObjectKey
	// Now is the present, or the newest moment that a directory knows of.
	Now time.Time
	// Note remembers what could not be read.
	Note func(text string)
}

// explainers are all that there are: those handed in, which ask the
// controllers of a dialect, and those that need the engine only.
func explainers(d Deps) []Explainer { return append(slices.Clone(d.Explainers), ownExplainers()...) }

func explainCommand(d Deps) *cobra.Command {
	var in inputs
	var out output
	var namespace string
	all := explainers(d)
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Says why an object is stuck, with the evidence and the next step",
		Long: `Says why an object is stuck: one paragraph, the evidence with since when, and
the next step as a command. It asks the code of the controllers themselves, reads
a live cluster, a directory of manifests or a must-gather, and changes nothing.

Kinds: ` + kindNames(all) + `.
Exit code: 0 when the object is fine or on its way, 1 when it is stuck.`,
		Example: "  millwright explain machine/demo-worker-1-x7k2p\n  millwright explain csr csr-9qz4l\n  millwright explain mhc/workers -n openshift-machine-api --from must-gather/",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, key, err := explained(all, args, namespace)
			if err != nil {
				return err
			}
			r, now, notes, err := in.reader(cmd.InOrStdin())
			if err != nil {
				return err
			}
			note := func(text string) {
				if !slices.Contains(notes, text) {
					notes = append(notes, text)
				}
			}
			ex, err := e.Explain(cmd.Context(), ExplainInput{Reader: r, Key: key, Now: now, Note: note})
			if err != nil {
				return explainFailed(e, key, err)
			}
			ex.Kind, ex.Namespace, ex.Name, ex.Notes = e.Kind, key.Namespace, key.Name, append(ex.Notes, notes...)
			if err := out.print(cmd.OutOrStdout(), ex, func(w io.Writer) error { return ex.text(w, now) }); err != nil {
				return err
			}
			if ex.State == StateStuck {
				return &exitError{ExitFailure}
			}
			return nil
		},
	}
	in.addCluster(cmd)
	addOutput(cmd, &out)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the object; default: where an installer puts the kind")
	return cmd
}

func explainFailed(e Explainer, key client.ObjectKey, err error) error {
	name := e.Kind + " " + strings.TrimPrefix(key.String(), "/")
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s", name)
	}
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("there is no %s: the cluster does not serve the kind", name)
	}
	return fmt.Errorf("explain %s: %w", name, err)
}

// explained finds whose explanation the arguments ask for.
func explained(all []Explainer, args []string, namespace string) (Explainer, client.ObjectKey, error) {
	kind, name, _ := strings.Cut(args[0], "/")
	if len(args) == 2 {
		if name != "" {
			return Explainer{}, client.ObjectKey{}, &UsageError{fmt.Sprintf("explain: %q and %q: want KIND/NAME or KIND NAME", args[0], args[1])}
		}
		name = args[1]
	}
	if kind == "" || name == "" || strings.Contains(name, "/") {
		return Explainer{}, client.ObjectKey{}, &UsageError{fmt.Sprintf("explain: %q: want KIND/NAME or KIND NAME", strings.Join(args, " "))}
	}
	for _, e := range all {
		if !e.called(kind) {
			continue
		}
		key := client.ObjectKey{Namespace: e.Namespace, Name: name}
		if namespace != "" && e.Namespace != "" {
			key.Namespace = namespace
		}
		return e, key, nil
	}
	return Explainer{}, client.ObjectKey{}, &UsageError{fmt.Sprintf("explain: no explanation for kind %q: want one of %s", kind, kindNames(all))}
}

// called says whether kind, as typed, means the explainer's; a group may
// follow, as may a version before it.
func (e Explainer) called(kind string) bool {
	name, group, grouped := strings.Cut(strings.ToLower(kind), ".")
	if !slices.Contains(e.Names, name) {
		return false
	}
	if _, rest, versioned := strings.Cut(group, "."); versioned && rest == e.Group {
		group = rest
	}
	return !grouped || group == e.Group
}

func kindNames(all []Explainer) string {
	var out []string
	for _, e := range all {
		if len(e.Names) > 0 {
			out = append(out, e.Names[0])
		}
	}
	return strings.Join(out, ", ")
}

// reader opens what the flags name, for reading one object and what it hangs
// together with.
func (in *inputs) reader(stdin io.Reader) (client.Reader, time.Time, []string, error) {
	switch {
	case in.from != "" && in.context+in.kubeconfig != "":
		return nil, time.Time{}, nil, &UsageError{"give the cluster either with --from or with --context and --kubeconfig"}
	case in.from == "":
		r, _, err := liveReader(in.kubeconfig, in.context)
		return r, time.Now(), nil, err
	}
	r, problems, err := fileReader(in.from, stdin)
	if err != nil {
		return nil, time.Time{}, nil, fmt.Errorf("read %s: %w", filepath.Clean(in.from), err)
	}
	store, ok := r.(fileStore)
	if !ok {
		return nil, time.Time{}, nil, errors.New("the files cannot be searched")
	}
	if err := indexFiles(store); err != nil {
		return nil, time.Time{}, nil, err
	}
	c := newCluster()
	c.unread(problems)
	return r, newest(store.Objects()), c.notes, nil
}

// fileStore is a reader of files that finds objects by fields.
type fileStore interface {
	client.Reader
	client.FieldIndexer
	Objects() []client.Object
}

// indexFiles makes files answer the field selectors that a server knows.
func indexFiles(s fileStore) error {
	ctx := context.Background()
	err := s.IndexField(ctx, &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			return []string{p.Spec.NodeName}
		}
		return nil
	})
	return errors.Join(err, s.IndexField(ctx, &corev1.Event{}, fieldEventObject, func(o client.Object) []string {
		if e, ok := o.(*corev1.Event); ok {
			return []string{e.InvolvedObject.Name}
		}
		return nil
	}))
}

// fieldEventObject finds the events of an object.
const fieldEventObject = "involvedObject.name"
