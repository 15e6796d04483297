package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	streamIdle     = 4 * time.Hour
	streamCreation = 30 * time.Second
	mastersGroup   = "system:masters"
)

// server is the kubelet's HTTPS endpoint.
type server struct {
	k    *Kubelet
	http *http.Server
}

func (k *Kubelet) newServer() (*server, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(k.cfg.ClientCAData) {
		return nil, fmt.Errorf("kubelet %s: no CA certificate for its callers", k.cfg.NodeName)
	}
	s := &server{k: k}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /containerLogs/{ns}/{pod}/{container}", s.logs)
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /exec/{ns}/{pod}/{container}", s.exec)
		mux.HandleFunc(method+" /attach/{ns}/{pod}/{container}", s.attach)
		mux.HandleFunc(method+" /portForward/{ns}/{pod}", s.portForward)
	}
	s.http = &http.Server{
		Handler:           s.authorized(mux),
		ReadHeaderTimeout: 30 * time.Second,
		// Streams upgrade HTTP/1.1 connections, so HTTP/2 is not offered.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.VerifyClientCertIfGiven,
			ClientCAs:  pool,
			NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return k.cfg.ServingCert()
			},
		},
	}
	return s, nil
}

// serve ends, with all its connections, when ctx does.
func (s *server) serve(ctx context.Context, lis net.Listener) error {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	if err := s.http.ServeTLS(lis, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve kubelet %s: %w", s.k.cfg.NodeName, err)
	}
	return nil
}

// authorized lets the API server and the cluster's masters in, nobody else;
// whoever may connect may know whether the kubelet lives.
func (s *server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/healthz" {
			next.ServeHTTP(w, req)
			return
		}
		if len(req.TLS.PeerCertificates) == 0 {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		who := req.TLS.PeerCertificates[0].Subject
		if who.CommonName != s.k.cfg.KubeletClientName && !slices.Contains(who.Organization, mastersGroup) {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=proxy)",
				who.CommonName, strings.ToLower(req.Method)), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func (k *Kubelet) find(ns, pod string) *podRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[ns+"/"+pod]
}

// target resolves the container a request names, or answers it.
func (s *server) target(w http.ResponseWriter, req *http.Request) (*podRun, *corev1.Container, bool) {
	ns, pod, name := req.PathValue("ns"), req.PathValue("pod"), req.PathValue("container")
	r := s.k.find(ns, pod)
	if r == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist on node %s", ns+"/"+pod, s.k.cfg.NodeName), http.StatusNotFound)
		return nil, nil, false
	}
	c := findContainer(r.podNow(), name)
	if c == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, pod), http.StatusNotFound)
		return nil, nil, false
	}
	return r, c, true
}

func (s *server) pods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	s.k.mu.Lock()
	runs := make([]*podRun, 0, len(s.k.runs))
	for _, key := range sortedKeys(s.k.runs) {
		runs = append(runs, s.k.runs[key])
	}
	s.k.mu.Unlock()
	for _, r := range runs {
		list.Items = append(list.Items, *r.podNow())
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.k.cfg.Log.V(1).Info("Listing pods to a caller that left", "reason", err.Error())
	}
}

func (s *server) metrics(w http.ResponseWriter, _ *http.Request) {
	pods, containers := 0, 0
	s.k.mu.Lock()
	for _, r := range s.k.runs {
		pods++
		for _, c := range r.sandbox().Containers {
			if c.Phase == Running {
				containers++
			}
		}
	}
	s.k.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# TYPE kubelet_node_name gauge\nkubelet_node_name{node=%q} 1\n", s.k.cfg.NodeName)
	fmt.Fprintf(w, "# TYPE kubelet_running_pods gauge\nkubelet_running_pods %d\n", pods)
	fmt.Fprintf(w, "# TYPE kubelet_running_containers gauge\nkubelet_running_containers{container_state=\"running\"} %d\n", containers)
}

func (s *server) logs(w http.ResponseWriter, req *http.Request) {
	r, c, ok := s.target(w, req)
	if !ok {
		return
	}
	o, previous, err := parseLogOptions(req.URL.Query(), s.k.cfg.Clock.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	r.mu.Lock()
	st, live := r.sb.Containers[c.Name], r.logs[c.Name]
	r.mu.Unlock()
	run := st.Restarts
	if previous {
		run, live = run-1, nil
		if run < 0 {
			http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found", c.Name, r.name), http.StatusBadRequest)
			return
		}
	} else if st.Phase == Created {
		if isInit(r.podNow(), c.Name) {
			return // it pretended to complete, and had nothing to say
		}
		http.Error(w, fmt.Sprintf("container %q in pod %q is waiting to start: %s", c.Name, r.name, waitingReason(st)), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	flusher := http.NewResponseController(w)
	err = sendLog(req.Context(), w, func() { _ = flusher.Flush() }, r.logPath(c.Name, run), live, o)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, fmt.Sprintf("unable to retrieve container logs for %s", containerID(st.ID)), http.StatusBadRequest)
	case err != nil:
		s.k.cfg.Log.V(1).Info("Sending log", "Pod", r.key, "container", c.Name, "reason", err.Error())
	}
}

func isInit(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

func waitingReason(c Container) string {
	if c.Reason != "" {
		return c.Reason
	}
	return "ContainerCreating"
}

// parseLogOptions reads the query of a log request.
func parseLogOptions(q map[string][]string, now time.Time) (o logOptions, previous bool, err error) {
	get := func(name string) string {
		if v := q[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	flag := func(name string) bool {
		b, err := strconv.ParseBool(get(name))
		return err == nil && b
	}
	number := func(name string) int64 {
		v := get(name)
		if v == "" {
			return -1
		}
		n, perr := strconv.ParseInt(v, 10, 64)
		if perr != nil || n < 0 {
			err = errors.Join(err, fmt.Errorf("invalid %s %q: must be a number of at least 0", name, v))
		}
		return n
	}
	o = logOptions{Follow: flag("follow"), Timestamps: flag("timestamps"), Tail: number("tailLines"), Limit: number("limitBytes")}
	if s := number("sinceSeconds"); s >= 0 {
		o.Since = now.Add(-time.Duration(min(s, 1<<32)) * time.Second)
	}
	if v := get("sinceTime"); v != "" {
		t, perr := time.Parse(time.RFC3339, v)
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("invalid sinceTime %q: %w", v, perr))
		}
		o.Since = t
	}
	return o, flag("previous"), err
}

func (s *server) exec(w http.ResponseWriter, req *http.Request) {
	r, c, ok := s.target(w, req)
	if !ok {
		return
	}
	opts, err := remotecommand.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cmd := req.URL.Query()["command"]
	if len(cmd) == 0 {
		http.Error(w, "you must specify at least one command for the container", http.StatusBadRequest)
		return
	}
	if r.sandbox().Containers[c.Name].Phase != Running {
		http.Error(w, fmt.Sprintf("container not found (%q)", c.Name), http.StatusInternalServerError)
		return
	}
	remotecommand.ServeExec(w, req, &session{k: s.k, r: r, c: c}, r.name, string(r.uid), c.Name, cmd, opts,
		streamIdle, streamCreation, remotecommand.SupportedStreamingProtocols)
}

func (s *server) attach(w http.ResponseWriter, req *http.Request) {
	r, c, ok := s.target(w, req)
	if !ok {
		return
	}
	opts, err := remotecommand.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.sandbox().Containers[c.Name].Phase != Running {
		http.Error(w, fmt.Sprintf("container not found (%q)", c.Name), http.StatusInternalServerError)
		return
	}
	remotecommand.ServeAttach(w, req, &session{k: s.k, r: r, c: c}, r.name, string(r.uid), c.Name, opts,
		streamIdle, streamCreation, remotecommand.SupportedStreamingProtocols)
}

func (s *server) portForward(w http.ResponseWriter, req *http.Request) {
	r := s.k.find(req.PathValue("ns"), req.PathValue("pod"))
	if r == nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	opts, err := portforward.NewV4Options(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, req, &session{k: s.k, r: r}, r.name, string(r.uid), opts,
		streamIdle, streamCreation, portforward.SupportedProtocols)
}
