package azure

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/cloud"
)

// Keys of a credentials Secret.
const (
	keySubscription  = "azure_subscription_id"
	keyClientID      = "azure_client_id"
	keyClientSecret  = "azure_client_secret"
	keyTenant        = "azure_tenant_id"
	keyResourceGroup = "azure_resourcegroup"
	keyRegion        = "azure_region"
)

// maxOpen bounds the cache of opened accounts; a rotated Secret leaves its old
// entry behind.
const maxOpen = 64

// Opener opens subscriptions. It is safe for concurrent use.
type Opener struct {
	cfg       azcloud.Configuration
	own       bool // not Azure's own public cloud
	transport policy.Transporter
	timeout   time.Duration
	retries   int32
	clk       clock.PassiveClock
	err       error // of an option

	mu   sync.Mutex
	open map[[sha256.Size]byte]*Cloud
}

var _ cloud.Opener = (*Opener)(nil)

// Option changes an Opener while it is built.
type Option func(*Opener)

// WithCloud talks to another Resource Manager and token endpoint than those of
// Azure's public cloud. Empty strings keep the public ones.
func WithCloud(endpoint, authorityHost string) Option {
	return func(o *Opener) {
		if endpoint != "" {
			endpoint = strings.TrimSuffix(endpoint, "/")
			o.cfg.Services = map[azcloud.ServiceName]azcloud.ServiceConfiguration{
				azcloud.ResourceManager: {Endpoint: endpoint, Audience: endpoint},
			}
		}
		if authorityHost != "" {
			o.cfg.ActiveDirectoryAuthorityHost, o.own = authorityHost, true
		}
	}
}

// WithCA trusts these certificates besides the system's. No bytes change
// nothing; bytes without a certificate make every Open fail.
func WithCA(pem []byte) Option {
	return func(o *Opener) {
		if len(pem) == 0 {
			return
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			o.err = errors.New("read CA bundle: it holds no PEM certificate")
			return
		}
		o.transport = httpClient(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	}
}

// WithTransport replaces the HTTP client.
func WithTransport(t policy.Transporter) Option { return func(o *Opener) { o.transport = t } }

// WithTimeout bounds each method of an opened Cloud; the default is a minute.
func WithTimeout(d time.Duration) Option { return func(o *Opener) { o.timeout = d } }

// WithRetries sets how often the SDK repeats a request that failed on the way;
// the default is 2, 0 is never. Throttled requests are never repeated: the
// caller is told how long to wait.
func WithRetries(n int) Option { return func(o *Opener) { o.retries = int32(n) } }

// WithClock replaces the clock that ages the catalogue.
func WithClock(clk clock.PassiveClock) Option { return func(o *Opener) { o.clk = clk } }

// NewOpener returns an Opener for Azure's public cloud, unless told otherwise.
func NewOpener(opts ...Option) *Opener {
	o := &Opener{
		cfg:       azcloud.Configuration{ActiveDirectoryAuthorityHost: azcloud.AzurePublic.ActiveDirectoryAuthorityHost, Services: azcloud.AzurePublic.Services},
		transport: httpClient(&tls.Config{MinVersion: tls.VersionTLS12}), timeout: time.Minute, retries: 2,
		clk: clock.RealClock{}, open: map[[sha256.Size]byte]*Cloud{},
	}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// httpClient keeps enough idle connections for a full worker pool, which the
// default transport (two per host) does not.
func httpClient(cfg *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg, ForceAttemptHTTP2: true,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 128, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute,
	}}
}

// Open implements cloud.Opener. It makes no request.
func (o *Opener) Open(_ context.Context, account cloud.Account) (cloud.Cloud, error) {
	if o.err != nil {
		return nil, &cloud.Fault{Kind: cloud.Credentials, Op: "open azure account", Cause: o.err}
	}
	if err := missing(account); err != nil {
		return nil, err
	}
	digest := digestOf(account)
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.open[digest]; c != nil {
		return c, nil
	}
	c, err := o.connect(account)
	if err != nil {
		return nil, &cloud.Fault{Kind: cloud.Credentials, Op: "open azure account " + account.Source, Cause: err}
	}
	if len(o.open) >= maxOpen {
		clear(o.open)
	}
	o.open[digest] = c
	return c, nil
}

// missing names the first key that an account lacks.
func missing(a cloud.Account) error {
	for _, k := range []struct{ what, key string }{
		{"subscription id", keySubscription}, {"client id", keyClientID}, {"client secret", keyClientSecret},
		{"tenant id", keyTenant}, {"resource group", keyResourceGroup}, {"region", keyRegion},
	} {
		if len(a.Data[k.key]) == 0 {
			return &cloud.Fault{Kind: cloud.Credentials, Op: "open azure account", Reason: "MissingKey",
				Message: "azure " + k.what + " not found in secret " + a.Source + " (" + k.key + ")"}
		}
	}
	return nil
}

func digestOf(a cloud.Account) [sha256.Size]byte {
	keys := make([]string, 0, len(a.Data))
	for k := range a.Data {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var buf []byte
	add := func(b []byte) {
		buf = binary.AppendUvarint(buf, uint64(len(b)))
		buf = append(buf, b...)
	}
	for _, k := range keys {
		add([]byte(k))
		add(a.Data[k])
	}
	return sha256.Sum256(buf)
}

func (o *Opener) connect(a cloud.Account) (*Cloud, error) {
	get := func(key string) string { return strings.TrimSpace(string(a.Data[key])) }
	base := azcore.ClientOptions{
		Cloud: o.cfg, Transport: o.transport,
		Retry: policy.RetryOptions{
			MaxRetries: o.retries, TryTimeout: 30 * time.Second, RetryDelay: 500 * time.Millisecond, MaxRetryDelay: 4 * time.Second,
			StatusCodes: []int{http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout},
		},
		Telemetry: policy.TelemetryOptions{ApplicationID: "millwright"},
	}
	if o.retries <= 0 {
		base.Retry.MaxRetries = -1 // 0 means the SDK's default
	}
	cred, err := azidentity.NewClientSecretCredential(get(keyTenant), get(keyClientID), get(keyClientSecret),
		&azidentity.ClientSecretCredentialOptions{ClientOptions: base, DisableInstanceDiscovery: o.own})
	if err != nil {
		return nil, err
	}
	opts := &arm.ClientOptions{ClientOptions: base, DisableRPRegistration: true}
	compute, err := armcompute.NewClientFactory(get(keySubscription), cred, opts)
	if err != nil {
		return nil, err
	}
	network, err := armnetwork.NewClientFactory(get(keySubscription), cred, opts)
	if err != nil {
		return nil, err
	}
	plain, err := arm.NewClient("millwright", "v1.0.0", cred, opts)
	if err != nil {
		return nil, err
	}
	return &Cloud{
		subscription: get(keySubscription), group: get(keyResourceGroup), region: get(keyRegion),
		timeout: o.timeout, clk: o.clk,
		vms: compute.NewVirtualMachinesClient(), disks: compute.NewDisksClient(), sets: compute.NewAvailabilitySetsClient(),
		skus: compute.NewResourceSKUsClient(), nics: network.NewInterfacesClient(), ips: network.NewPublicIPAddressesClient(),
		subnets: network.NewSubnetsClient(), lbs: network.NewLoadBalancersClient(),
		regions: regionLister{client: plain}, market: market{entries: map[string]*shelf{}},
	}, nil
}
