package vm

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"
)

// A stub is followed through refusals to the config, with its header and its
// authority only.
func TestFetcherFollowsTheStub(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || !strings.Contains(r.Header.Get("Accept"), "version=3.5.0") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,x"}}]}}`)
	}))
	defer srv.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	stub := fmt.Sprintf(`{"ignition":{"version":"3.5.0","config":{"merge":[{"source":"https://example.com:22623/config/worker","httpHeaders":[{"name":"Authorization","value":"Bearer secret"}]}]},
		"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;base64,%s"}]}}}}`, ca)
	var dialled string
	f := &Fetcher{Clock: clock.RealClock{}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled = address
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}}
	var console strings.Builder
	raw, err := f.Resolve(context.Background(), []byte(stub), func(format string, args ...any) { fmt.Fprintf(&console, format+"\n", args...) })
	if err != nil {
		t.Fatal(err)
	}
	files, err := ignitionFiles(raw)
	if err != nil || string(files["etc/a"]) != "x" {
		t.Errorf("files %v, error %v", files, err)
	}
	if dialled != "example.com:22623" || !strings.Contains(console.String(), "attempt #3: OK") {
		t.Errorf("dialled %s; console:\n%s", dialled, console.String())
	}
}

func TestFetcherRefusesAServerOfAnotherAuthority(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fetcher{Clock: clock.RealClock{}, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}}
	var said string
	_, err := f.Resolve(ctx, []byte(`{"ignition":{"version":"3.5.0","config":{"merge":[{"source":"https://example.com/config/worker"}]}}}`), func(format string, args ...any) {
		said = fmt.Sprintf(format, args...)
		cancel()
	})
	if err == nil || !strings.Contains(said, "unknown authority") {
		t.Errorf("error %v, console %q; want a refused certificate", err, said)
	}
}

// ignitionFiles returns the files of a first-boot config by name below the
// root.
func ignitionFiles(raw []byte) (map[string][]byte, error) {
	cfg, err := parseIgnition(raw)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, f := range cfg.Storage.Files {
		name, err := rel(f.Path)
		if err != nil {
			return nil, err
		}
		if f.Contents.Source == nil {
			continue
		}
		if out[name], err = fetch(f.Contents); err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Path, err)
		}
	}
	return out, nil
}
