package vrm

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type object = map[string]any

// call is one request on its way.
type call struct {
	r     *http.Request
	body  []byte
	fault *Fault // of its task
}

func (c *call) id() string           { return c.r.PathValue("id") }
func (c *call) q(name string) string { return c.r.URL.Query().Get(name) }

func (c *call) decode(v any) *Error {
	if len(c.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.body, v); err != nil {
		return input("The request body is not understood: " + err.Error())
	}
	return nil
}

type route struct {
	pattern, op string
	serve       func(*Server, *call) (any, *Error)
}

// table is every call that needs a session; {S} is the site's path.
var table = []route{
	{"GET /service/sites", "site.list", (*Server).sites},
	{"GET {S}", "site.get", (*Server).site},
	{"GET {S}/clusters", "cluster.list", (*Server).listClusters},
	{"GET {S}/clusters/{id}", "cluster.get", (*Server).getCluster},
	{"PUT {S}/clusters/{id}", "cluster.put", (*Server).putCluster},
	{"GET {S}/hosts", "host.list", (*Server).listHosts},
	{"GET {S}/datastores", "datastore.list", (*Server).listDatastores},
	{"GET {S}/datastores/{id}", "datastore.get", (*Server).getDatastore},
	{"GET {S}/datastores/{id}/file", "file.list", (*Server).listFiles},
	{"DELETE {S}/datastores/{id}/file", "file.delete", (*Server).deleteFile},
	{"POST {S}/datastores/{id}/action/applyUpload", "file.upload", (*Server).applyUpload},
	{"GET {S}/datastoreclusters", "datastorecluster.list", (*Server).listGroups},
	{"GET {S}/dvswitchs", "dvswitch.list", (*Server).listSwitches},
	{"GET {S}/dvswitchs/{id}/portgroups", "portgroup.list", (*Server).listPortGroups},
	{"GET {S}/portgroups", "portgroup.list", (*Server).listPortGroups},
	{"GET {S}/folder", "folder.list", (*Server).listFolders},
	{"GET {S}/vms", "vm.list", (*Server).listVMs},
	{"GET {S}/vms/{id}", "vm.get", (*Server).getVM},
	{"PUT {S}/vms/{id}", "vm.put", (*Server).putVM},
	{"DELETE {S}/vms/{id}", "vm.delete", (*Server).deleteVM},
	{"POST {S}/vms/{id}/action/clone", "vm.clone", (*Server).clone},
	{"POST {S}/vms/{id}/action/start", "vm.start", (*Server).startVM},
	{"POST {S}/vms/{id}/action/stop", "vm.stop", (*Server).stopVM},
	{"POST {S}/vms/{id}/action/reboot", "vm.reboot", (*Server).rebootVM},
	{"POST {S}/vms/{id}/action/attachvol", "vm.attachvol", (*Server).attachVolume},
	{"POST {S}/vms/{id}/action/detachvol", "vm.detachvol", (*Server).detachVolume},
	{"POST {S}/vms/{id}/action/attachCdrom", "vm.attachcdrom", (*Server).attachCDROM},
	{"POST {S}/vms/{id}/action/detachCdrom", "vm.detachcdrom", (*Server).detachCDROM},
	{"POST {S}/volumes", "volume.create", (*Server).createVolume},
	{"GET {S}/volumes", "volume.list", (*Server).listVolumes},
	{"GET {S}/volumes/{id}", "volume.get", (*Server).getVolume},
	{"PUT {S}/volumes/{id}", "volume.put", (*Server).putVolume},
	{"DELETE {S}/volumes/{id}", "volume.delete", (*Server).deleteVolume},
	{"GET {S}/tasks/{id}", "task.get", (*Server).getTask},
	{"GET {S}/tasks", "task.list", (*Server).listTasks},
}

// Ops lists the operations that Fault.Op and Slow may name, sorted.
func Ops() []string {
	out := []string{"session.create", "file.put"}
	for _, r := range table {
		out = append(out, r.op)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	site := "/service/sites/" + s.cfg.Site
	for _, r := range table {
		mux.HandleFunc(strings.Replace(r.pattern, "{S}", site, 1), func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, r) })
	}
	mux.HandleFunc("GET /service/versions", func(w http.ResponseWriter, _ *http.Request) {
		out := []object{}
		for _, v := range s.cfg.Versions {
			out = append(out, object{"version": v, "loginUri": "/service/session"})
		}
		answer(w, http.StatusOK, object{"versions": out})
	})
	mux.HandleFunc("POST /service/session", s.login)
	mux.HandleFunc("DELETE /service/session", s.logout)
	mux.HandleFunc("PUT /upload/{id}", s.putFile)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { refuse(w, missing(r.URL.Path)) })
	return mux
}

// enter counts a request, refuses one too many and waits as long as the
// operation is slow. leave must be called in any case.
func (s *Server) enter(r *http.Request, op string) *Error {
	s.mu.Lock()
	s.requests[op]++
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
	over := s.cfg.Concurrency > 0 && s.inFlight > s.cfg.Concurrency
	wait := s.slow[op]
	if over {
		s.requests["refused"]++
	}
	s.mu.Unlock()
	if over {
		return &Error{Status: http.StatusServiceUnavailable, Code: codeTransient, Des: "The system is busy. Please try again later."}
	}
	if wait > 0 {
		t := s.cfg.Clock.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C():
		case <-r.Context().Done():
			return &Error{Status: http.StatusServiceUnavailable, Code: codeTransient, Des: "The client went away."}
		}
	}
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route) {
	defer s.leave()
	if e := s.enter(r, rt.op); e != nil {
		refuse(w, e)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		refuse(w, input("The request body ends early."))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	if e := s.authorized(r); e != nil {
		refuse(w, e)
		return
	}
	c := &call{r: r, body: body}
	f := s.takeFault(rt.op)
	if f != nil && !f.Async && !f.Lost {
		refuse(w, f.error())
		return
	}
	if f != nil && f.Async {
		c.fault = f
	}
	out, e := rt.serve(s, c)
	switch {
	case e != nil:
		refuse(w, e)
	case f != nil && f.Lost:
		refuse(w, f.error())
	default:
		answer(w, http.StatusOK, out)
	}
	s.settle()
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func refuse(w http.ResponseWriter, e *Error) { answer(w, e.Status, e) }

// page cuts a list as VRM does: at most 100, and who asks for more starts
// again at 0.
func page(c *call, name string, all []object) object {
	limit, offset := 20, 0
	if n, err := strconv.Atoi(c.q("limit")); err == nil && n > 0 {
		limit = n
	}
	if n, err := strconv.Atoi(c.q("offset")); err == nil && n > 0 {
		offset = n
	}
	if limit > 100 {
		limit, offset = 100, 0
	}
	total := len(all)
	offset = min(offset, total)
	return object{"total": total, name: all[offset:min(offset+limit, total)]}
}

// like is how VRM's filters match: any part, in any case.
func like(value, filter string) bool {
	return strings.Contains(strings.ToLower(value), strings.ToLower(filter))
}

func uri(urn string) string {
	return "/service" + strings.ReplaceAll(strings.TrimPrefix(urn, "urn"), ":", "/")
}

func last(urn string) string { return urn[strings.LastIndexByte(urn, ':')+1:] }
