package vrm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/sim/vrm"
)

type site struct {
	*vrm.Server
	t     *testing.T
	clk   *clocktesting.FakeClock
	token string
}

func newSite(t *testing.T, change func(*vrm.Config)) *site {
	t.Helper()
	s := &site{t: t, clk: clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
	cfg := vrm.Config{User: "api", Password: "right", Clock: s.clk, TaskDelay: 40 * time.Second, Log: logr.Discard()}
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
	s.Server = srv
	return s
}

// do sends a request; path is below the site unless it starts with /service.
func (s *site) do(method, path string, body any, headers ...string) (int, map[string]any, http.Header) {
	s.t.Helper()
	raw, _ := json.Marshal(body)
	if !strings.HasPrefix(path, "/") {
		path = "/service/sites/EC1C108C/" + path
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(raw))
	r.Header.Set("Accept", "application/json;version=8.1;charset=UTF-8")
	r.Header.Set("X-Auth-Token", s.token)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	out := map[string]any{}
	_ = json.Unmarshal(w.Body.Bytes(), &out)
	return w.Code, out, w.Header()
}

func (s *site) login(password string, headers ...string) map[string]any {
	s.t.Helper()
	h := append([]string{"X-Auth-User", "api", "X-Auth-Key", password, "X-ENCRYPT-ALGORITHM", "1", "X-Auth-UserType", "2"}, headers...)
	_, out, head := s.do("POST", "/service/session", nil, h...)
	if t := head.Get("X-Auth-Token"); t != "" {
		s.token = t
	}
	return out
}

func (s *site) ok(method, path string, body any) map[string]any {
	s.t.Helper()
	status, out, _ := s.do(method, path, body)
	if status != 200 || out["errorCode"] != nil {
		s.t.Fatalf("%s %s: %d %v", method, path, status, out)
	}
	return out
}

func (s *site) refused(method, path string, body any, code string) {
	s.t.Helper()
	if _, out, _ := s.do(method, path, body); out["errorCode"] != code {
		s.t.Errorf("%s %s: got %v, want code %s", method, path, out, code)
	}
}

func id(urn string) string { return urn[strings.LastIndexByte(urn, ':')+1:] }

// clone makes a VM off the first template and returns its path.
func (s *site) clone(name string) string {
	s.t.Helper()
	t := s.ok("GET", "vms?isTemplate=true&name=k8s-v1.33", nil)["vms"].([]any)[0].(map[string]any)["urn"].(string)
	out := s.ok("POST", "vms/"+id(t)+"/action/clone", map[string]any{"name": name, "autoBoot": false,
		"vmConfig": map[string]any{"cpu": map[string]any{"quantity": 2}, "memory": map[string]any{"quantityMB": 2048}}})
	s.clk.Step(time.Minute)
	return "vms/" + id(out["urn"].(string))
}

func TestLogin(t *testing.T) {
	s := newSite(t, nil)
	if got := s.login("right", "Accept", "application/json;version=9.9")["errorCode"]; got != "10000022" {
		t.Errorf("version 9.9: got %v", got)
	}
	if got := s.login("1f64a8ff", "X-ENCRYPT-ALGORITHM", "0")["errorCode"]; got == nil {
		t.Error("a wrong hash is accepted")
	}
	if s.login("right", "X-Auth-UserType", "1")["errorCode"] == nil {
		t.Error("the wrong user type is accepted")
	}
	s.login("right")
	s.ok("GET", "vms", nil)
	s.clk.Step(31 * time.Minute)
	s.refused("GET", "vms", nil, "10000002")
	for range 5 {
		s.login("wrong")
	}
	for range 3 { // each attempt starts the lock anew
		s.clk.Step(4 * time.Minute)
		if got := s.login("right")["errorCode"]; got != "10100116" {
			t.Fatalf("while locked: got %v", got)
		}
	}
	s.clk.Step(5 * time.Minute)
	if got := s.login("right")["errorCode"]; got != nil {
		t.Errorf("after the lock: got %v", got)
	}
}

func TestListsAreInexactAndPaged(t *testing.T) {
	s := newSite(t, nil)
	s.login("right")
	for i := range 12 {
		s.clone(fmt.Sprintf("Node-%d", i))
	}
	if n := s.ok("GET", "vms?name=node-1", nil)["total"]; n != 3.0 {
		t.Errorf("node-1 matches %v, want Node-1, Node-10 and Node-11", n)
	}
	if got := s.ok("GET", "vms?limit=4&offset=13", nil)["vms"].([]any); len(got) != 2 {
		t.Errorf("last page: %d, want 2 of 15", len(got))
	}
	if got := s.ok("GET", "vms?limit=1000&offset=13", nil)["vms"].([]any); len(got) != 15 {
		t.Errorf("limit 1000: %d, want all from the start", len(got))
	}
}

func TestTransitionsAndVolumes(t *testing.T) {
	s := newSite(t, nil)
	s.login("right")
	p := s.clone("w")
	ds := s.ok("GET", "datastores?name=ds-1", nil)["datastores"].([]any)[0].(map[string]any)["urn"].(string)
	vol := s.ok("POST", "volumes", map[string]any{"name": "v", "quantityGB": 5, "datastoreUrn": ds, "indepDisk": true, "persistentDisk": true})["urn"].(string)
	s.clk.Step(time.Minute)
	s.refused("POST", p+"/action/stop", nil, "10300057")
	s.ok("POST", p+"/action/attachvol", map[string]any{"volUrn": vol, "sequenceNum": 2})
	s.refused("POST", p+"/action/start", nil, "10300057") // its task runs
	s.clk.Step(time.Minute)
	s.refused("POST", p+"/action/attachvol", map[string]any{"volUrn": vol, "sequenceNum": 3}, "10420005")
	s.refused("DELETE", "volumes/"+id(vol), nil, "10420005")
	s.ok("POST", p+"/action/start", nil)
	s.clk.Step(time.Minute)
	s.refused("DELETE", p, nil, "102212808")
	s.ok("POST", p+"/action/stop?mode=safe", nil)
	s.clk.Step(time.Minute)
	s.ok("DELETE", p, nil)
	s.clk.Step(time.Minute)
	if v := s.Volumes(); len(v) != 0 {
		t.Errorf("an attached volume outlives its VM unless told to: %v", v)
	}
}

func TestRules(t *testing.T) {
	s := newSite(t, nil)
	s.login("right")
	var vms []map[string]any
	for i := range 3 {
		vms = append(vms, map[string]any{"urn": "urn:sites:EC1C108C:vms:" + id(strings.ReplaceAll(s.clone(fmt.Sprint("cp-", i)), "/", ":"))})
	}
	c := s.ok("GET", "clusters", nil)["clusters"].([]any)
	path := "clusters/" + id(c[0].(map[string]any)["urn"].(string))
	change := func(rule map[string]any) map[string]any {
		return map[string]any{"drsSetting": map[string]any{"drsRules": []any{rule}}}
	}
	s.ok("PUT", path, change(map[string]any{"operationType": 2, "ruleName": "r", "ruleType": 2, "vms": vms}))
	s.refused("PUT", path, change(map[string]any{"operationType": 2, "ruleName": "r"}), "10000001")
	hosts := map[string]bool{}
	for _, v := range s.VMs() {
		if !v.Template {
			hosts[v.HostURN] = true
		}
	}
	if len(hosts) != 3 {
		t.Errorf("3 members on %d hosts", len(hosts))
	}
	s.ok("PUT", path, change(map[string]any{"operationType": 0, "ruleIndex": 1}))
	other := "clusters/" + id(c[1].(map[string]any)["urn"].(string))
	s.refused("PUT", other, change(map[string]any{"operationType": 2, "ruleName": "r"}), "10000001") // DRS is off
}

type hardware struct {
	mu  sync.Mutex
	log []string
}

func (h *hardware) add(s string)            { h.mu.Lock(); h.log = append(h.log, s); h.mu.Unlock() }
func (h *hardware) Create(v vrm.VM)         { h.add("create " + v.Name) }
func (h *hardware) Power(_ string, on bool) { h.add(fmt.Sprint("power ", on)) }
func (h *hardware) Delete(string)           { h.add("delete") }
func (h *hardware) wait(t *testing.T, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		got = strings.Join(h.log, ", ")
		h.mu.Unlock()
		if got == want {
			return
		}
	}
	t.Fatalf("hardware was told %q, want %q", got, want)
}

func TestStateSurvives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dcs.json")
	hw := &hardware{}
	with := func(h *hardware) func(*vrm.Config) {
		return func(c *vrm.Config) { c.StateFile, c.Machines = file, h }
	}
	s := newSite(t, with(hw))
	s.login("right")
	p := s.clone("w")
	s.ok("POST", p+"/action/start", nil)
	s.clk.Step(time.Minute)
	s.ok("POST", p+"/action/reboot", nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	hw2 := &hardware{}
	again := newSite(t, with(hw2))
	hw2.wait(t, "create w, power true")
	again.clk.Step(time.Hour)
	again.refused("GET", p, nil, "10000002") // sessions do not survive
	again.login("right")
	if got := again.ok("GET", p, nil)["status"]; got != "running" {
		t.Errorf("the VM is %v", got)
	}
	for _, bad := range []string{`{`, `{}`, `{"formatVersion":99}`, `{"formatVersion":1,"site":"X"}`} {
		if err := os.WriteFile(file+"x", []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vrm.New(vrm.Config{StateFile: file + "x", User: "u", Password: "p"}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestKnobsRefuseUnknownNames(t *testing.T) {
	s := newSite(t, nil)
	for name, err := range map[string]error{"fail": s.Fail(vrm.Fault{Op: "vm.fly"}), "slow": s.Slow("vm.*", 1), "capacity": s.SetCapacity("x", 1), "stop": s.ForceStop("x")} {
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func FuzzReadDisc(f *testing.F) {
	img := make([]byte, 20*2048)
	copy(img[16*2048:], "\x02CD001")
	f.Add(img)
	f.Fuzz(func(_ *testing.T, img []byte) { vrm.ReadDisc(img, "ignition", "config.ign") })
}
