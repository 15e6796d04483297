package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Every way into a root shows the same root, and /host in it.
func TestEntriesReachTheRoot(t *testing.T) {
	root := machineRoot(t)
	if err := linkHost(root); err != nil {
		t.Fatal(err)
	}
	ways := entries(root)
	for i, enter := range ways[:len(ways)-1] { // the last one has no chroot to test
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var out bytes.Buffer
			cmd := &exec.Cmd{Path: "/bin/tool", Args: []string{"tool", "chroot", "/host", "/bin/tool", "ls", "/etc"}, Stdout: &out, Stderr: &out, SysProcAttr: &syscall.SysProcAttr{}}
			enter(cmd)
			if err := cmd.Run(); errors.Is(err, syscall.EPERM) && i > 0 {
				t.Skip("user namespaces are not allowed here")
			} else if err != nil || out.String() != "os-release\n" {
				t.Errorf("ls shows %q: %v", out.String(), err)
			}
		})
	}
}

func TestLookInStaysInRoot(t *testing.T) {
	root := machineRoot(t)
	for name, want := range map[string]string{"tool": "/bin/tool", "/bin/tool": "/bin/tool", "../../bin/tool": "/bin/tool"} {
		if got, err := lookIn(root, name); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"bash", "/usr/bin/env"} {
		if got, err := lookIn(root, name); err == nil {
			t.Errorf("%s is found at %s", name, got)
		}
	}
}

func TestEgressKnowsOnlyItsWorld(t *testing.T) {
	lis, err := net.Listen("tcp", "127.201.7.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	path := filepath.Join(t.TempDir(), "e.sock")
	e := NewEgress(path)
	e.AddStatic("172.30.0.9", "127.201.7.2")
	k := &Kubelet{cfg: Config{NodeName: "n", BindIP: "127.201.7.2"}, podIPs: map[string]string{"10.128.0.7": "127.201.7.2"}}
	e.AddNode("10.0.0.9", k)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "socket is there", func() error {
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm() != 0o600 {
			return fmt.Errorf("mode is %v", info.Mode())
		}
		return err
	})
	for _, host := range []string{"172.30.0.9", "10.0.0.9", "n", "10.128.0.7", "127.201.7.2"} {
		if code, text := throughEgress(t, path, net.JoinHostPort(host, port)); code != http.StatusOK || text != "ping" {
			t.Errorf("%s answers %d %q, want an echo", host, code, text)
		}
	}
	if code, text := throughEgress(t, path, "10.99.0.1:443"); code != http.StatusBadGateway || !strings.Contains(text, "10.99.0.1") {
		t.Errorf("an unknown address answers %d %q", code, text)
	}
	k.withdrawLocked("10.128.0.7")
	if code, _ := throughEgress(t, path, net.JoinHostPort("10.128.0.7", port)); code != http.StatusBadGateway {
		t.Errorf("a pod that is gone answers %d", code)
	}
	e.RemoveNode("10.0.0.9")
	if code, _ := throughEgress(t, path, net.JoinHostPort("10.0.0.9", port)); code != http.StatusBadGateway {
		t.Errorf("a node that is gone answers %d", code)
	}
}

func throughEgress(t *testing.T, path, addr string) (int, string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	fmt.Fprint(conn, "ping")
	b := make([]byte, 4)
	if _, err := io.ReadFull(in, b); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestPublishReplacesAllAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	read := func() map[string]string {
		got := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
				got[e.Name()] = string(b)
			}
		}
		return got
	}
	for _, want := range []map[string]string{{"crt": "1", "key": "1"}, {"crt": "2", "key": "2"}, {"crt": "2", "key": "2"}, {"only": "3"}} {
		files := map[string]file{}
		for name, text := range want {
			files[name] = file{data: []byte(text), mode: 0o644}
		}
		if err := publish(dir, files); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, read()); d != "" {
			t.Errorf("content (-want +got):\n%s", d)
		}
	}
	if err := publish(dir, map[string]file{"../out": {}}); err == nil {
		t.Error("a path out of the volume is accepted")
	}
}

func TestAddressesAreUniqueUntilNoneIsLeft(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.1.0.0/28"))
	seen := map[string]bool{}
	for i := range 13 {
		ip, err := a.take(types.UID(fmt.Sprint(i)), "")
		if err != nil || seen[ip] {
			t.Fatalf("address %d is %s (%v), seen before: %v", i, ip, err, seen[ip])
		}
		seen[ip] = true
	}
	if ip, err := a.take("more", ""); err == nil {
		t.Fatalf("a full prefix gives %s", ip)
	}
	a.free("4")
	if ip, err := a.take("more", ""); err != nil || !seen[ip] {
		t.Errorf("after one was freed: %s, %v", ip, err)
	}
}

func TestNewRefusesLabelsOfOthers(t *testing.T) {
	cfg := Config{NodeName: "n", Rest: &rest.Config{}, BindIP: "127.0.0.1", NodeLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "node-role.kubernetes.io/worker") {
		t.Errorf("error is %v, want one that names the label", err)
	}
	if err := allowedLabels(map[string]string{"topology.kubernetes.io/zone": "1", "node.kubernetes.io/x": "", "example.com/a": ""}); err != nil {
		t.Error(err)
	}
}

func TestNodeStatusKeepsAddressesOfTheCloud(t *testing.T) {
	cfg := Config{NodeName: "n", ProviderExternal: true, Rest: &rest.Config{}, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.4"}}}
	cfg.defaults()
	f := cfg.facts()
	prev := nodeStatus(f, corev1.NodeStatus{}, noon)
	prev.Addresses = append(prev.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "20.1.1.1"})
	if d := cmp.Diff(prev, nodeStatus(f, prev, noon.Add(f.HeartbeatAtMost-1))); d != "" {
		t.Errorf("an unchanged node is written (-want +got):\n%s", d)
	}
	next := nodeStatus(f, prev, noon.Add(f.HeartbeatAtMost))
	if !next.Conditions[0].LastHeartbeatTime.After(noon) || next.Conditions[0].LastTransitionTime != prev.Conditions[0].LastTransitionTime {
		t.Errorf("condition is %+v, want a new heartbeat and the old transition", next.Conditions[0])
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$(B)", "$(A", "$", "a$b$(A)c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got := expand(in, map[string]string{"A": "x"})
		if !strings.Contains(in, "$") && got != in {
			t.Errorf("%q becomes %q", in, got)
		}
		if len(got) > len(in) {
			t.Errorf("%q grows to %q", in, got)
		}
	})
}

// What is logged is read back, whatever it is.
func FuzzLogRoundTrip(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), []byte("three"))
	f.Add(bytes.Repeat([]byte("x"), 2*maxLine+5), []byte("\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		path := filepath.Join(t.TempDir(), "0.log")
		l, err := createLog(path, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		w := l.stream("stdout")
		for _, chunk := range [][]byte{a, b} {
			if _, err := w.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		w.flush()
		l.close()
		var got bytes.Buffer
		if err := sendLog(context.Background(), &got, func() {}, path, l, logOptions{Tail: -1, Limit: -1}); err != nil {
			t.Fatal(err)
		}
		want := append(append([]byte(nil), a...), b...)
		if len(want) > 0 && want[len(want)-1] != '\n' {
			want = append(want, '\n')
		}
		if g := got.Bytes(); !bytes.Equal(g, want) && !bytes.Equal(bytes.TrimSuffix(g, []byte("\n")), bytes.TrimSuffix(want, []byte("\n"))) {
			t.Errorf("log is %.80q, want %.80q", g, want)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte("2026-11-30T12:00:00.000000000Z stdout F text"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if rec, ok := parseRecord(line); ok && !bytes.HasSuffix(line, rec.text) {
			t.Errorf("%q is read as %q", line, rec.text)
		}
	})
}
