//go:build scale

package scale

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// request is one finished request of the audit log.
type request struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// writes says whether the request counts as a write: no Events, no Leases.
func (r request) writes() bool {
	switch r.Object.Resource {
	case "", "events", "leases", "tokenreviews", "subjectaccessreviews":
		return false
	}
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// account shortens a user to what the figures show.
func (r request) account() string {
	u := strings.TrimPrefix(r.User.Username, "system:serviceaccount:")
	switch {
	case strings.HasPrefix(u, "system:node:"):
		return "the kubelets"
	case u == r.User.Username:
		return u
	}
	_, name, _ := strings.Cut(u, ":")
	return name
}

// auditFiles are the parts of the audit log, oldest first: the server begins a
// new one every 100 MB.
func (w *world) auditFiles(t *testing.T) []string {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(w.dir, "logs", "audit-*.log")) // named by the time of their end
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(parts)
	return append(parts, filepath.Join(w.dir, "logs", "audit.log"))
}

// auditEnd is how long the audit log is, over all parts.
func (w *world) auditEnd(t *testing.T) int64 {
	t.Helper()
	var end int64
	for _, f := range w.auditFiles(t) {
		info, err := os.Stat(f)
		if errors.Is(err, os.ErrNotExist) { // between two parts
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		end += info.Size()
	}
	return end
}

// audit calls with for each request that was finished since an earlier end,
// and returns the new end.
func (w *world) audit(t *testing.T, from int64, with func(request)) int64 {
	t.Helper()
	var begin int64 // of the part, in the whole log
	for _, name := range w.auditFiles(t) {
		info, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if size := info.Size(); from < begin+size {
			from = begin + readPart(t, name, from-begin, with)
		}
		begin += info.Size()
	}
	return from
}

// readPart reads the whole lines of one part from an offset on, and returns
// where they end.
func readPart(t *testing.T, name string, from int64, with func(request)) int64 {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil { // what follows the last line break is still being written
			return from
		}
		from += int64(len(line))
		var q request
		if err := json.Unmarshal(bytes.TrimSpace(line), &q); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		with(q)
	}
}

// untilQuiet waits until no component has written for a while.
func (w *world) untilQuiet(t *testing.T, quiet, limit time.Duration) {
	t.Helper()
	end, since := w.auditEnd(t), time.Now()
	until(t, limit, func() error {
		wrote := 0
		end = w.audit(t, end, func(r request) {
			if r.writes() && strings.HasPrefix(r.User.Username, "system:serviceaccount:openshift-") {
				wrote++
			}
		})
		if wrote > 0 {
			since = time.Now()
		}
		if left := quiet - time.Since(since); left > 0 {
			return fmt.Errorf("%d writes in two seconds, quiet since %s", wrote, since)
		}
		return nil
	})
}

// tally are the writes of one account.
type tally struct {
	writes, refused int
	kinds           map[string]int
}

// queue are the waits in one controller's queue: how many ended below each
// bound, in seconds.
type queue map[float64]float64

func (q queue) total() float64 { return q[math.Inf(1)] }

// longest is the least bound below which all waits ended.
func (q queue) longest() float64 {
	for _, le := range slices.Sorted(maps.Keys(q)) {
		if q[le] == q.total() {
			return le
		}
	}
	return math.Inf(1)
}

// sample is what was used until a moment.
type sample struct {
	at     time.Time
	audit  int64
	cpu    map[string]time.Duration
	queues map[string]queue
}

func (w *world) sample(t *testing.T) sample {
	t.Helper()
	s := sample{at: time.Now(), audit: w.auditEnd(t), cpu: map[string]time.Duration{}, queues: map[string]queue{}}
	for _, p := range w.processes(t) {
		s.cpu[p.controllers] += p.cpu()
		if p.metrics != "" {
			readQueues(t, p.metrics, s.queues)
		}
	}
	return s
}

// readQueues adds the waits that a process serves.
func readQueues(t *testing.T, address string, to map[string]queue) {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "workqueue_queue_duration_seconds_bucket{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		name, le := label(labels, "name"), label(labels, "le")
		bound, err1 := strconv.ParseFloat(le, 64)
		n, err2 := strconv.ParseFloat(value, 64)
		if err := cmp.Or(err1, err2); err != nil {
			t.Fatalf("read %s of %s: %v", lines.Text(), address, err)
		}
		if to[name] == nil {
			to[name] = queue{}
		}
		to[name][bound] += n
	}
}

func label(labels, name string) string {
	_, v, _ := strings.Cut(","+labels, ","+name+`="`)
	v, _, _ = strings.Cut(v, `"`)
	return v
}

// cost is what happened between two samples.
type cost struct {
	name     string
	machines int
	load     string // of the whole machine
	took     time.Duration
	accounts map[string]*tally
	cpu      map[string]time.Duration
	queues   map[string]queue
	memory   map[string]float64 // MiB at the end, by process
}

func (w *world) since(t *testing.T, name string, machines int, from sample) cost {
	t.Helper()
	to := w.sample(t)
	load, _ := os.ReadFile("/proc/loadavg")
	c := cost{name: name, machines: machines, load: strings.Split(string(load), " ")[0], took: to.at.Sub(from.at), accounts: map[string]*tally{}, cpu: map[string]time.Duration{}, queues: map[string]queue{}, memory: map[string]float64{}}
	w.audit(t, from.audit, func(r request) {
		if !r.writes() {
			return
		}
		a := c.accounts[r.account()]
		if a == nil {
			a = &tally{kinds: map[string]int{}}
			c.accounts[r.account()] = a
		}
		a.writes++
		if r.Response.Code == http.StatusNotFound || r.Response.Code == http.StatusConflict {
			a.refused++
		}
		what := r.Verb + " " + r.Object.Resource
		if r.Object.Subresource != "" {
			what += "/" + r.Object.Subresource
		}
		a.kinds[fmt.Sprintf("%s %d", what, r.Response.Code)]++
	})
	for name, used := range to.cpu {
		c.cpu[name] = used - from.cpu[name]
	}
	for name, q := range to.queues {
		c.queues[name] = queue{}
		for le, n := range q {
			c.queues[name][le] = n - from.queues[name][le]
		}
	}
	for _, p := range w.processes(t) {
		c.memory[p.controllers] = max(c.memory[p.controllers], p.privateMiB())
	}
	return c
}

// each is a number per Machine.
func (c cost) each(n float64) float64 { return n / float64(c.machines) }

// milliseconds of CPU per Machine, of all processes named.
func (c cost) milliseconds(names ...string) float64 {
	var sum time.Duration
	for _, n := range names {
		sum += c.cpu[n]
	}
	return c.each(float64(sum) / float64(time.Millisecond))
}
