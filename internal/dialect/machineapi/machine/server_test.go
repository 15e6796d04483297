package machine_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/machine"
	"millwright.io/millwright/internal/dialect/machineapi/nodelink"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/provider/fake"
	"millwright.io/millwright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// wireTap counts write requests that the server answered, events apart.
type wireTap struct {
	next http.RoundTripper
	mu   sync.Mutex
	log  []string
	bad  []string
}

func (x *wireTap) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := x.next.RoundTrip(r)
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") || err != nil {
		return res, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	line := fmt.Sprintf("%s %s: %d", r.Method, r.URL.Path, res.StatusCode)
	x.log = append(x.log, line)
	if res.StatusCode >= 400 {
		x.bad = append(x.bad, line)
	}
	return res, nil
}

func (x *wireTap) counts() (writes, refused []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.log...), append([]string(nil), x.bad...)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for: %s", what)
		}
	}
}

// On a real API server with its watches and a cache that lags for real: many
// Machines come to Running within the budget of writes, and go again without
// leaving anything.
func TestMachinesLiveOnARealServer(t *testing.T) {
	const count = 20
	env := testenv.Start(t, testenv.WithFamilies("machine", "openshift"))
	ctx := t.Context()
	fakeCloud := fake.New(clock.RealClock{}, fake.WithBootDelay(time.Second), fake.WithDeleteDelay(time.Second))
	tap := &wireTap{}
	cfg := rest.CopyConfig(env.Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { tap.next = rt; return tap })
	mgr, err := kube.NewManager(cfg, kube.ManagerOptions{Component: "test", Scheme: env.Client.Scheme(), Log: kube.KlogText("test")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []kube.Controller{
		machine.New(machine.Deps{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Opener: fake.Opener{Cloud: fakeCloud}, Codec: fake.Codec{},
			ProviderStatus: providerStatus, Recorder: mgr.GetEventRecorder("azure-controller"), Log: kube.KlogText("machine-controller"),
		}),
		nodelink.New(nodelink.Deps{Client: mgr.GetClient(), Clock: clock.RealClock{}, Log: kube.KlogText("nodelink-controller")}),
	} {
		if err := c.Setup(mgr); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	infra := &configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.Namespace}}, infra,
		secret("fake-cloud-credentials", "token", "t"), secret("worker-user-data", "userData", "ignition")} {
		if err := env.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	for i := range count {
		if err := env.Client.Create(ctx, worker(func(m *machinev1.Machine) { m.Name = fmt.Sprintf("demo-worker-a-%05d", i) })); err != nil {
			t.Fatal(err)
		}
	}
	booted := map[string]bool{}
	eventually(t, "all Machines Running", func() bool {
		for _, i := range fakeCloud.Instances() {
			if i.State == cloud.StateRunning && !booted[i.Key.Name] {
				booted[i.Key.Name] = true
				join(t, env, i)
			}
		}
		return phases(t, env)[wire.PhaseRunning] == count
	})
	time.Sleep(3 * time.Second) // whatever is written too much comes now
	writes, refused := tap.counts()
	if got, most := len(writes), 6*count; got > most {
		t.Errorf("%d writes for %d Machines, want at most %d:\n%s", got, count, most, strings.Join(writes, "\n"))
	}
	if len(refused) > 0 {
		t.Errorf("refused:\n%s", strings.Join(refused, "\n"))
	}
	if err := env.Client.DeleteAllOf(ctx, &machinev1.Machine{}, client.InNamespace(wire.Namespace)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all Machines gone", func() bool { return len(phases(t, env)) == 0 })
	if left := fakeCloud.Parts(); len(left) > 0 {
		t.Errorf("left in the cloud: %v", left)
	}
	var nodes corev1.NodeList
	if err := env.Client.List(ctx, &nodes); err != nil || len(nodes.Items) > 0 {
		t.Errorf("error %v, %d Nodes left", err, len(nodes.Items))
	}
}

func phases(t *testing.T, env *testenv.Env) map[string]int {
	t.Helper()
	var list machinev1.MachineList
	if err := env.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range list.Items {
		out[ptr.Deref(m.Status.Phase, "")]++
	}
	return out
}

// join registers the Node of a running instance.
func join(t *testing.T, env *testenv.Env, i cloud.Instance) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.Key.Name}}
	if err := env.Client.Create(t.Context(), n); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	n.Status.Addresses = i.Addresses
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now())}}
	if err := env.Client.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}
