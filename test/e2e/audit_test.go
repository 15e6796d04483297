package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// request is one finished request of the audit log.
type request struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

func (r request) String() string {
	what := r.Object.Resource
	if r.Object.Subresource != "" {
		what += "/" + r.Object.Subresource
	}
	return fmt.Sprintf("%s %s %s %s (%d)", strings.TrimPrefix(r.User.Username, "system:serviceaccount:"), r.Verb, what, r.Object.Name, r.Response.Code)
}

// writes says whether the request counts as a write: no Events, no Leases.
func (r request) writes() bool {
	switch r.Object.Resource {
	case "", "events", "leases", "tokenreviews", "subjectaccessreviews":
		return false
	}
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// auditEnd is where the audit log ends now.
func (w *world) auditEnd(t testing.TB) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(w.dir, "logs", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// audit reads the requests that were finished since an earlier end.
func (w *world) audit(t testing.TB, from int64) []request {
	t.Helper()
	f, err := os.Open(filepath.Join(w.dir, "logs", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var out []request
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil { // what follows the last line break is still being written
			return out
		}
		var q request
		if err := json.Unmarshal(bytes.TrimSpace(line), &q); err != nil {
			t.Fatalf("read audit log: %v", err)
		}
		out = append(out, q)
	}
}

const (
	accountMachineAPI = "system:serviceaccount:openshift-machine-api:machine-api-controllers"
	accountApprover   = "system:serviceaccount:openshift-cluster-machine-approver:machine-approver-sa"
	accountCloud      = "system:serviceaccount:openshift-cloud-controller-manager:cloud-controller-manager"
)

// components are the accounts with the names of their roles.
var components = map[string]string{
	accountMachineAPI: "machine-api-controllers",
	accountApprover:   "machine-approver",
	accountCloud:      "cloud-controller-manager",
}

// writesOf counts the writes of an account by what they write.
func writesOf(requests []request, account string) (int, string) {
	kinds := map[string]int{}
	total := 0
	for _, r := range requests {
		if r.User.Username == account && r.writes() {
			total++
			what := r.Verb + " " + r.Object.Resource
			if r.Object.Subresource != "" {
				what += "/" + r.Object.Subresource
			}
			kinds[fmt.Sprintf("%s %d", what, r.Response.Code)]++
		}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, fmt.Sprintf("%s ×%d", k, kinds[k]))
	}
	return total, strings.Join(out, ", ")
}

// untilQuiet waits until the components have written nothing for a while, and
// returns when that while began.
func (w *world) untilQuiet(t testing.TB, quiet time.Duration) int64 {
	t.Helper()
	from, since := w.auditEnd(t), time.Now()
	var last []string
	err := poll(t.Context(), changeLimit, func() error {
		end := w.auditEnd(t)
		if wrote := w.componentWrites(t, from); len(wrote) > 0 {
			from, since, last = end, time.Now(), wrote
		}
		if left := quiet - time.Since(since); left > 0 {
			return fmt.Errorf("not quiet for %s yet; last writes:\n%s", quiet, strings.Join(last, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return from
}

func (w *world) componentWrites(t testing.TB, from int64) []string {
	t.Helper()
	var out []string
	for _, r := range w.audit(t, from) {
		if _, ours := components[r.User.Username]; ours && r.writes() {
			out = append(out, r.String())
		}
	}
	return out
}

// TestWritesPerMachine counts what a Machine costs the API server from its
// creation to Running.
func TestWritesPerMachine(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	machines := sized(4, 20)
	makeSet(t, w, "writes", "")
	from := w.untilQuiet(t, 3*time.Second)
	scale(t, w, "writes", machines)
	untilRunning(t, w, "writes", machines)
	// The node clients' requests come some seconds after the Node.
	w.until(t, "oc get csr | grep -c 'kube-apiserver-client .*system:node:writes-.*Approved,Issued'", changeLimit, func(out string) error {
		if out != fmt.Sprint(2*machines) {
			return fmt.Errorf("%s node client certificates, want %d", out, 2*machines)
		}
		return nil
	})
	w.untilQuiet(t, 3*time.Second)
	requests := w.audit(t, from)

	// Approvals of node clients are the second approver's.
	signers := w.sh(t, `oc get csr -o jsonpath='{range .items[*]}{.metadata.name}{" "}{.spec.signerName}{"\n"}{end}' | grep 'kube-apiserver-client$' | cut -d' ' -f1`)
	isClient := func(r request) bool {
		return r.Object.Resource == "certificatesigningrequests" && slices.Contains(strings.Fields(signers), r.Object.Name)
	}
	kubelets := slices.DeleteFunc(slices.Clone(requests), isClient)
	for _, row := range []struct {
		account string
		in      []request
		limit   float64
	}{{accountMachineAPI, requests, 8}, {accountApprover, kubelets, 2}, {accountCloud, requests, 3}} {
		total, kinds := writesOf(row.in, row.account)
		each := float64(total) / float64(machines)
		t.Logf("%s: %.2f writes per Machine (%s)", components[row.account], each, kinds)
		if each > row.limit {
			t.Errorf("%s: %.2f writes per Machine, want at most %.0f: %s", components[row.account], each, row.limit, kinds)
		}
	}
}

// TestNoWritesWhileIdle waits until the world is at rest and then watches it.
func TestNoWritesWhileIdle(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	watch := time.Duration(sized(30, 60)) * time.Second
	// Twice untilQuiet would hide a loop that writes more rarely than the
	// first wait; here the second window is a hard one.
	w.untilQuiet(t, 5*time.Second)
	from := w.auditEnd(t)
	done := time.Now().Add(watch)
	_ = poll(t.Context(), watch+pollEvery, func() error {
		if time.Now().Before(done) {
			return fmt.Errorf("watching")
		}
		return nil
	})
	if wrote := w.componentWrites(t, from); len(wrote) > 0 {
		t.Errorf("%d writes in %s of rest, want none:\n%s", len(wrote), watch, strings.Join(wrote, "\n"))
	}
}
