package dcs_test

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/cloud/cloudtest"
	"millwright.io/millwright/internal/provider/dcs"
	"millwright.io/millwright/internal/provider/dcs/spec"
	"millwright.io/millwright/internal/sim/vrm"
)

const userData = `{"ignition":{"version":"3.4.0"}}`

// subject is a simulated site, a Cloud that talks to it, and a line between
// them that can be cut.
type subject struct {
	vrm *vrm.Server
	clk *clocktesting.FakeClock
	web *httptest.Server
	ca  []byte

	mu    sync.Mutex
	calls int
	cutAt int // the answer to this call and everything after it is lost; 0: never
	cloud cloud.Cloud
}

func newSubject(t *testing.T, change func(*vrm.Config), opts ...dcs.Option) *subject {
	t.Helper()
	s := &subject{clk: clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
	cfg := vrm.Config{User: "api", Password: "right", Clock: s.clk, TaskDelay: 40 * time.Second, TokenIdle: 1000 * time.Hour, Log: logr.Discard()}
	if change != nil {
		change(&cfg)
	}
	srv, err := vrm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	if err := srv.Seed(vrm.DefaultSeed()); err != nil {
		t.Fatal(err)
	}
	s.vrm = srv
	s.web = httptest.NewTLSServer(http.HandlerFunc(s.line))
	t.Cleanup(s.web.Close)
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.web.Certificate().Raw})
	s.cloud = s.open(t, nil, opts...)
	return s
}

func (s *subject) line(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls++
	n, cut := s.calls, s.cutAt
	s.mu.Unlock()
	switch {
	case cut == 0 || n < cut:
		s.vrm.Handler().ServeHTTP(w, r)
		return
	case n == cut:
		s.vrm.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	panic(http.ErrAbortHandler)
}

// cut loses the answer to the n-th call from now on and all that follow.
func (s *subject) cut(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.cutAt = 0, n
}

func (s *subject) open(t *testing.T, change func(map[string]cloud.Secret), opts ...dcs.Option) cloud.Cloud {
	t.Helper()
	data := map[string]cloud.Secret{"authUser": cloud.Secret("api"), "authKey": cloud.Secret("right"), "endpoint": cloud.Secret(s.web.URL), "site": cloud.Secret("EC1C108C"), "caBundle": s.ca}
	if change != nil {
		change(data)
	}
	c, err := dcs.NewOpener(append([]dcs.Option{dcs.WithClock(s.clk)}, opts...)...).Open(t.Context(), cloud.Account{Source: "cpaas-system/dcs", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func workerSpec(name string, change func(*spec.Spec)) *spec.Spec {
	h := sha256.Sum256([]byte(name))
	s := &spec.Spec{VMTemplateName: "k8s-v1.33", IPHostPoolRef: spec.Ref{Name: "pool"}, Location: &spec.Place{Type: "folder", Name: "workload"},
		VMConfig: &spec.VMConfig{CPU: spec.Quantity{Quantity: 8}, Memory: spec.Quantity{Quantity: 16384}, DVSwitchName: "dvs-1", PortGroupName: "nodes",
			Disks: []spec.Disk{{SystemVolume: true, DatastoreGroup: "dsc-1"}, {Quantity: 100, Datastore: "ds-1", Path: "/var/lib/kubelet", Format: "xfs"}}},
		Slot: spec.Slot{IP: fmt.Sprintf("10.%d.%d.%d", h[0], h[1], h[2])}}
	if change != nil {
		change(s)
	}
	return s
}

func intent(name, uid string, change func(*spec.Spec)) cloud.Intent {
	return cloud.Intent{Key: cloud.Key{UID: uid, Name: name}, Owner: cloudtest.Owner, Spec: workerSpec(name, change), UserData: cloud.Secret(userData)}
}

func (s *subject) leaks() []string {
	out := s.vrm.Files()
	for _, v := range s.vrm.VMs() {
		if !v.Template {
			out = append(out, "vm "+v.Name+" "+v.Status)
		}
	}
	for _, v := range s.vrm.Volumes() {
		out = append(out, "volume "+v.Name)
	}
	return out
}

func (s *subject) harness(change func(*spec.Spec)) *cloudtest.Harness {
	ops := map[cloudtest.Step]string{
		cloudtest.FailObserve: "vm.list", cloudtest.FailCreate: "vm.clone", cloudtest.FailDelete: "vm.stop",
		cloudtest.FailDeletePart: "file.delete", cloudtest.FailList: "vm.list",
	}
	codes := map[cloud.Kind]vrm.Fault{
		cloud.Throttled: {Status: 429}, cloud.Denied: {Status: 403, Code: "10000045"}, cloud.Transient: {Status: 500, Code: "10999999"},
		cloud.Quota:      {Code: "10300998", Message: "The number of VMs exceeds the upper limit."},
		cloud.NoCapacity: {Code: "10300999", Message: "The resources of the cluster are insufficient."}, cloud.Invalid: {Status: 400, Code: "10000001"},
	}
	return &cloudtest.Harness{
		Cloud:  s.cloud,
		Intent: func(name, uid string) cloud.Intent { return intent(name, uid, change) },
		Fail: func(step cloudtest.Step, kind cloud.Kind) bool {
			f, ok := codes[kind]
			f.Op = ops[step]
			return ok && s.vrm.Fail(f) == nil
		},
		Settle: func() { s.clk.Step(2 * time.Minute) },
		Hang:   func() { _ = s.vrm.Slow("vm.list", 100*time.Hour) },
		Vanish: func(name string) { _ = s.vrm.DeleteVM(name) },
		Leaks:  s.leaks,
	}
}

func TestConformance(t *testing.T) {
	t.Run("worker", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness { return newSubject(t, nil).harness(nil) })
	})
	t.Run("disc after power on", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness {
			s := newSubject(t, nil)
			s.vrm.CDROMNeedsRunning(true)
			return s.harness(nil)
		})
	})
	t.Run("domain user, expiry in the body", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness {
			s := newSubject(t, func(c *vrm.Config) { c.UserType, c.Versions = "1", []string{"6.5"} })
			s.cloud = s.open(t, func(d map[string]cloud.Secret) { d["userType"] = cloud.Secret("Domain") })
			h := s.harness(nil)
			h.Settle = func() { s.clk.Step(2 * time.Minute); s.vrm.ExpireSessions(true) }
			return h
		})
	})
}
