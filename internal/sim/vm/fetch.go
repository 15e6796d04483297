package vm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/clock"
)

// Limits of a first boot's requests. Pauses are shorter than the 5 s of Ignition, since a
// world's servers start together with its machines.
const (
	fetchTimeout = 30 * time.Second
	fetchLimit   = 64 << 20
	firstPause   = 200 * time.Millisecond
	longestPause = time.Second
	maxDepth     = 5 // of stubs that lead to stubs
)

// acceptIgnition is what a machine with this Ignition says that it reads.
const acceptIgnition = "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1"

// Fetcher follows the stub that a machine got as its user data to the config that
// it names, as Ignition does at a first boot.
type Fetcher struct {
	// Dial opens connections from inside the machine's network.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock clock.Clock
}

// Resolve returns user data without references: what they name is fetched and laid
// over them. It tries until it gets an answer, or ctx ends; a refusal by the server
// is tried again too, since a pool may get its config only later.
func (f *Fetcher) Resolve(ctx context.Context, userData []byte, print func(string, ...any)) ([]byte, error) {
	cfg, err := parseIgnition(userData)
	if err != nil {
		return nil, err
	}
	if len(cfg.Ignition.Config.Merge) == 0 && cfg.Ignition.Config.Replace.Source == nil {
		return userData, nil
	}
	if cfg, err = f.follow(ctx, cfg, print, maxDepth); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode fetched config: %w", err)
	}
	return raw, nil
}

func (f *Fetcher) follow(ctx context.Context, cfg types.Config, print func(string, ...any), depth int) (types.Config, error) {
	if depth == 0 {
		return cfg, fmt.Errorf("ignition.config: more than %d references lead to each other", maxDepth)
	}
	one := func(r types.Resource) (types.Config, error) {
		raw, err := f.get(ctx, r, cfg.Ignition.Security.TLS.CertificateAuthorities, print)
		if err != nil {
			return types.Config{}, err
		}
		child, err := parseIgnition(raw)
		if err != nil {
			return types.Config{}, err
		}
		return f.follow(ctx, child, print, depth-1)
	}
	if cfg.Ignition.Config.Replace.Source != nil {
		return one(cfg.Ignition.Config.Replace)
	}
	merge := cfg.Ignition.Config.Merge
	cfg.Ignition.Config.Merge = nil
	for _, r := range merge {
		child, err := one(r)
		if err != nil {
			return cfg, err
		}
		cfg = ignition.Merge(cfg, child)
	}
	return cfg, nil
}

// get fetches a resource, again and again until it is there.
func (f *Fetcher) get(ctx context.Context, r types.Resource, authorities []types.Resource, print func(string, ...any)) ([]byte, error) {
	if r.Source == nil || strings.HasPrefix(*r.Source, "data:") {
		return fetch(r)
	}
	client, err := f.client(authorities)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	pause := firstPause
	for attempt := 1; ; attempt++ {
		body, err := request(ctx, client, r)
		if err == nil {
			print("Ignition: GET %s: attempt #%d: OK", *r.Source, attempt)
			return body, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		print("Ignition: GET %s: attempt #%d: %v", *r.Source, attempt, err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.Clock.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// client trusts the authorities of the stub and nobody else.
func (f *Fetcher) client(authorities []types.Resource) (*http.Client, error) {
	roots := x509.NewCertPool()
	for _, a := range authorities {
		pem, err := fetch(a)
		if err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, errors.New("read certificate authority: no certificate in it")
		}
	}
	return &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{
		DialContext: f.Dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}, nil
}

func request(ctx context.Context, client *http.Client, r types.Resource) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, *r.Source, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", acceptIgnition)
	req.Header.Set("User-Agent", "Ignition/2.22.0")
	for _, h := range r.HTTPHeaders {
		if h.Value != nil {
			req.Header.Set(h.Name, *h.Value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, fetchLimit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if len(body) > fetchLimit {
		return nil, fmt.Errorf("the answer has more than %d bytes", fetchLimit)
	}
	return body, nil
}
