package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineconfig/generator"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/dialect/machineconfig/render"
	"millwright.io/millwright/internal/dialect/machineconfig/template"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

// pools is a cluster with every Machine Config controller at work.
type pools struct {
	t      *testing.T
	scheme *runtime.Scheme
	api    *memapi.API
	clk    *clocktesting.FakeClock
	all    []kube.Controller
}

func newPools(t *testing.T) *pools {
	t.Helper()
	p := &pools{t: t, scheme: runtime.NewScheme(), clk: clocktesting.NewFakeClock(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, configv1.Install, machineconfigv1.Install, operatorv1.Install, operatorv1alpha1.Install} {
		if err := add(p.scheme); err != nil {
			t.Fatal(err)
		}
	}
	p.api = memapi.New(p.scheme, p.clk)
	p.apply("testdata/generate/cluster.yaml")
	log, rec := logr.Discard(), &events.FakeRecorder{}
	p.all = append([]kube.Controller{
		template.New(template.Deps{Client: p.api, Live: p.api, Clock: p.clk, Log: log}),
		poolconfig.New(poolconfig.Deps{Client: p.api, Live: p.api, Clock: p.clk, Recorder: rec, Log: log}),
		render.New(render.Deps{Client: p.api, Live: p.api, Clock: p.clk, Recorder: rec, Log: log}),
	}, generator.All(generator.Deps{Client: p.api, Live: p.api, Clock: p.clk, Log: log})...)
	p.settle()
	return p
}

// apply creates or replaces the objects of a file, as kubectl apply would.
func (p *pools) apply(file string) {
	p.t.Helper()
	tree, err := memapi.Path(file, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := memapi.Reader(p.scheme, tree)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, o := range s.Objects() {
		gvk, err := apiutil.GVKForObject(o, p.scheme)
		if err != nil {
			p.t.Fatal(err)
		}
		fresh, err := p.scheme.New(gvk)
		if err != nil {
			p.t.Fatal(err)
		}
		now := fresh.(client.Object)
		if p.api.Get(p.t.Context(), client.ObjectKeyFromObject(o), now) != nil {
			err = p.api.Create(p.t.Context(), o)
		} else {
			raw, encodeErr := json.Marshal(o)
			if encodeErr != nil {
				p.t.Fatal(encodeErr)
			}
			err = p.api.Patch(p.t.Context(), now, client.RawPatch("application/merge-patch+json", raw))
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *pools) settle() {
	p.t.Helper()
	for quiet := 0; quiet < 5; quiet++ {
		before := p.api.Writes()
		for _, c := range p.all {
			for _, o := range p.objects() {
				if fmt.Sprintf("%T", o) != fmt.Sprintf("%T", c.For) {
					continue
				}
				if _, err := c.Step(p.t.Context(), client.ObjectKeyFromObject(o)); err != nil {
					p.t.Fatalf("%s: %v", c.Name, err)
				}
			}
		}
		p.clk.Step(time.Second)
		if p.api.Writes() != before {
			quiet = 0
		}
		if len(p.api.Log()) > 2000 {
			p.t.Fatal("does not settle")
		}
	}
}

func (p *pools) objects() []client.Object {
	p.t.Helper()
	var out []client.Object
	for _, l := range []client.ObjectList{
		&machineconfigv1.ControllerConfigList{}, &machineconfigv1.MachineConfigPoolList{}, &machineconfigv1.MachineConfigList{},
		&machineconfigv1.KubeletConfigList{}, &machineconfigv1.ContainerRuntimeConfigList{}, &operatorv1.MachineConfigurationList{},
		&configv1.ImageList{}, &configv1.FeatureGateList{}, &configv1.NodeList{}, &configv1.ImageDigestMirrorSetList{}, &corev1.NodeList{},
	} {
		if err := p.api.List(p.t.Context(), l); err != nil {
			p.t.Fatal(err)
		}
		err := meta.EachListItem(l, func(o runtime.Object) error { out = append(out, o.(client.Object)); return nil })
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return out
}

// dump writes the whole cluster into a directory, one file an object.
func (p *pools) dump() string {
	p.t.Helper()
	dir := p.t.TempDir()
	for _, o := range p.objects() {
		gvk, err := apiutil.GVKForObject(o, p.scheme)
		if err != nil {
			p.t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		b, err := yaml.Marshal(o)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ToLower(gvk.Group+"-"+gvk.Kind+"-"+o.GetName())+".yaml"), b, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	return dir
}

func (p *pools) target(pool string) string {
	p.t.Helper()
	var mcp machineconfigv1.MachineConfigPool
	if err := p.api.Get(p.t.Context(), client.ObjectKey{Name: pool}, &mcp); err != nil {
		p.t.Fatal(err)
	}
	return mcp.Spec.Configuration.Name
}

// run runs the command line as it is composed.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	var out, errs bytes.Buffer
	cmd := cli.Command(cli.Deps{PlanSets: planSets, Generate: generate})
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.ExitCode(cmd.ExecuteContext(t.Context()), &errs)
	return code, out.String(), errs.String()
}

// planOf is the plan of one file for a dumped cluster.
func planOf(t *testing.T, dir string, args ...string) (cli.Plan, int) {
	t.Helper()
	code, out, errs := run(t, append([]string{"plan", "--from", dir, "-o", "json", "--exit-code"}, args...)...)
	var p cli.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	return p, code
}

func poolOf(t *testing.T, p cli.Plan, name string) cli.PoolPlan {
	t.Helper()
	i := slices.IndexFunc(p.Pools, func(x cli.PoolPlan) bool { return x.Pool == name })
	if i < 0 {
		t.Fatalf("no pool %s in %+v", name, p)
	}
	return p.Pools[i]
}

// TestPlanOfSettingsIsWhatTheClusterDoes plans each kind of setting, applies
// it, and finds the pool at the planned name.
func TestPlanOfSettingsIsWhatTheClusterDoes(t *testing.T) {
	for _, tt := range []struct {
		file, why, generated, action, item string
	}{
		{"kubeletconfig", "the kubelet reads its config at its start", "99-worker-generated-kubelet", "reboot", "file /etc/kubernetes/kubelet.conf"},
		{"containerruntimeconfig", "the container runtime reads its drop-ins at its start", "99-worker-generated-containerruntime", "reboot", "file /etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"},
		{"digestmirrors", "mirrors are read again by a reload", "99-worker-generated-registries", "reload crio.service", "file /etc/containers/registries.conf"},
		{"tagmirrors", "mirrors of tags may change which image runs", "99-worker-generated-registries", "", "file /etc/containers/registries.conf"},
		{"policy", "the older kind of mirror", "99-worker-generated-registries", "", "file /etc/containers/registries.conf"},
		{"image", "a blocked registry is the policy's", "99-worker-generated-registries", "", "file /etc/containers/registries.conf"},
		{"featuregate", "the kubelet knows gates", "98-worker-generated-kubelet", "reboot", "file /etc/kubernetes/kubelet.conf"},
		{"node", "the kubelet reports less often", "97-worker-generated-kubelet", "reboot", ""},
	} {
		t.Run(tt.file, func(t *testing.T) {
			p := newPools(t)
			before := p.target("worker")
			file := "testdata/generate/" + tt.file + ".yaml"
			dir := p.dump()
			planned, code := planOf(t, dir, "-f", file)
			w := poolOf(t, planned, "worker")
			if code != cli.ExitChanges || w.Old != before || !w.Changed {
				t.Fatalf("code %d, plan %+v", code, planned)
			}
			if !slices.ContainsFunc(planned.Generated, func(g cli.GeneratedChange) bool { return g.Config == tt.generated }) {
				t.Errorf("generated: %+v, want %s", planned.Generated, tt.generated)
			}
			if tt.action != "" && !strings.Contains(w.Action, tt.action) {
				t.Errorf("%s: action %s, want %s", tt.why, w.Action, tt.action)
			}
			if tt.item != "" && !slices.ContainsFunc(w.Items, func(i cli.ItemChange) bool { return i.Item == tt.item && i.SetBy == tt.generated }) {
				t.Errorf("items: %+v, want %s set by %s", w.Items, tt.item, tt.generated)
			}
			_, name, _ := run(t, "render", "--from", dir, "-f", file, "--pool", "worker", "-o", "name")
			p.apply(file)
			p.settle()
			if got := p.target("worker"); got != w.New || got != strings.TrimSpace(name) {
				t.Errorf("the cluster aims at %s; plan said %s, render %s", got, w.New, name)
			}
			again, code := planOf(t, p.dump(), "-f", file)
			if code != 0 || again.Changes || len(again.Generated) > 0 {
				t.Errorf("applied already: code %d, %+v", code, again)
			}
		})
	}
}

// TestPlanOfARefusedSetting keeps the configs and names what is wrong.
func TestPlanOfARefusedSetting(t *testing.T) {
	p := newPools(t)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	manifest := "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: bad}\nspec:\n" +
		"  machineConfigPoolSelector: {matchLabels: {nobody: ''}}\n  kubeletConfig: {maxPods: 5}\n"
	if err := os.WriteFile(bad, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	got, code := planOf(t, p.dump(), "-f", bad)
	if code != cli.ExitFailure || got.Changes || len(got.Findings) != 1 || got.Findings[0].Object != "KubeletConfig/bad" ||
		!strings.Contains(got.Findings[0].Why, "could not find any MachineConfigPool set for KubeletConfig") {
		t.Errorf("code %d: %+v", code, got)
	}
}

// TestPlanOfARemovedSetting takes its config away again.
func TestPlanOfARemovedSetting(t *testing.T) {
	p := newPools(t)
	before := p.target("worker")
	p.apply("testdata/generate/kubeletconfig.yaml")
	p.settle()
	got, code := planOf(t, p.dump(), "--without", "KubeletConfig/set-max-pods")
	if w := poolOf(t, got, "worker"); code != cli.ExitChanges || w.New != before || w.Old != p.target("worker") {
		t.Errorf("code %d: %s → %s, want back to %s", code, w.Old, w.New, before)
	}
	if want := (cli.GeneratedChange{Config: "99-worker-generated-kubelet", Change: "removed"}); !slices.Contains(got.Generated, want) {
		t.Errorf("generated: %+v", got.Generated)
	}
}

// TestPlanKeepsWhatAnotherVersionMade: only what the files change is made
// anew.
func TestPlanKeepsWhatAnotherVersionMade(t *testing.T) {
	p := newPools(t)
	var mc machineconfigv1.MachineConfig
	if err := p.api.Get(t.Context(), client.ObjectKey{Name: "98-worker-generated-kubelet"}, &mc); err != nil {
		t.Fatal(err)
	}
	mc.Spec.KernelArguments = []string{"from.another=version"}
	if err := p.api.Update(t.Context(), &mc); err != nil {
		t.Fatal(err)
	}
	got, _ := planOf(t, p.dump(), "-f", "testdata/generate/digestmirrors.yaml")
	for _, g := range got.Generated {
		if g.Config == "98-worker-generated-kubelet" {
			t.Errorf("the mirrors do not change it: %+v", got.Generated)
		}
	}
	if w := poolOf(t, got, "worker"); !strings.Contains(strings.Join(w.Notes, "\n"), "even without the files") {
		t.Errorf("notes: %q", w.Notes)
	}
	got, _ = planOf(t, p.dump(), "-f", "testdata/generate/featuregate.yaml")
	if !strings.Contains(strings.Join(got.Notes, "\n"), "98-worker-generated-kubelet is not what this version makes of the present settings") {
		t.Errorf("notes: %q", got.Notes)
	}
}
