package azure

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/cloud"
)

// answer is what the SDK makes of a response.
func answer(status int, header http.Header, body string) error {
	u, _ := url.Parse("https://management.azure.com/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m?api-version=1")
	if header == nil {
		header = http.Header{}
	}
	return runtime.NewResponseError(&http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: header, Body: io.NopCloser(bytes.NewBufferString(body)),
		Request: &http.Request{Method: http.MethodPut, URL: u},
	})
}

func armError(code, message string) string {
	return `{"error":{"code":"` + code + `","message":"` + message + `"}}`
}

func TestFaultTellsOneCodesMeaningsApart(t *testing.T) {
	type want struct {
		Kind  cloud.Kind
		After time.Duration
		Quota *cloud.QuotaUse
	}
	for _, tc := range []struct {
		name, code, message string
		status              int
		header              http.Header
		want                want
	}{
		{"regional quota", "OperationNotAllowed", "exceeding approved Total Regional Cores quota. Location: demoregion, Current Limit: 100, Current Usage: 98, Additional Required: 8", 409, nil,
			want{cloud.Quota, 0, &cloud.QuotaUse{Scope: "Total Regional Cores", Needed: 8, Used: 98, Limit: 100}}},
		{"family quota", "OperationNotAllowed", "exceeding approved standardDSv5Family Cores quota. Location: demoregion, Current Limit: 64, Current Usage: 64, Additional Required: 4", 409, nil,
			want{cloud.Quota, 0, &cloud.QuotaUse{Scope: "standardDSv5Family", Needed: 4, Used: 64, Limit: 64}}},
		{"spot quota", "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved LowPriorityCores quota. Current Limit: 3, Current Usage: 0, Additional Required: 4", 409, nil,
			want{cloud.Quota, 0, &cloud.QuotaUse{Scope: "LowPriorityCores", Needed: 4, Limit: 3}}},
		{"throttling", "OperationNotAllowed", "too many requests have been received for this subscription", 429, http.Header{"Retry-After": {"120"}},
			want{cloud.Throttled, 120 * time.Second, nil}},
		{"wrong moment", "OperationNotAllowed", "The VM is being deallocated.", 409, nil, want{Kind: cloud.Transient}},
		{"other quota", "QuotaExceeded", "no more disks", 403, nil, want{Kind: cloud.Quota}},
		{"addresses", "PublicIPCountLimitReached", "no more addresses", 400, nil, want{Kind: cloud.Quota}},
		{"size sold out", "SkuNotAvailable", "not now", 409, nil, want{Kind: cloud.NoCapacity}},
		{"zone full", "ZonalAllocationFailed", "not here", 409, nil, want{Kind: cloud.NoCapacity}},
		{"role", "AuthorizationFailed", "no", 403, nil, want{Kind: cloud.Denied}},
		{"policy", "RequestDisallowedByPolicy", "no", 403, nil, want{Kind: cloud.Denied}},
		{"token", "InvalidAuthenticationToken", "no", 401, nil, want{Kind: cloud.Credentials}},
		{"parameter", "InvalidParameter", "no", 400, nil, want{Kind: cloud.Invalid}},
		{"image", "GalleryImageNotFound", "no", 404, nil, want{Kind: cloud.Invalid}},
		{"interface kept for another", "NicReservedForAnotherVm", "wait", 400, nil, want{Kind: cloud.Transient}},
		{"busy", "Conflict", "wait", 409, nil, want{Kind: cloud.Transient}},
		{"none", "ResourceNotFound", "no", 404, nil, want{Kind: cloud.NotFound}},
		{"no group", "ResourceGroupNotFound", "no", 404, nil, want{Kind: cloud.Transient}},
		{"broken", "InternalServerError", "oops", 500, http.Header{"Retry-After": {"3"}}, want{Kind: cloud.Transient, After: 3 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fault("create vm m", "", answer(tc.status, tc.header, armError(tc.code, tc.message)))
			if d := cmp.Diff(tc.want, want{f.Kind, f.RetryAfter, f.Quota}); d != "" {
				t.Errorf("fault (-want +got):\n%s", d)
			}
			if f.Reason != tc.code || f.Op != "create vm m" {
				t.Errorf("got reason %q, op %q", f.Reason, f.Op)
			}
		})
	}
}

func TestNestedQuotaIsQuota(t *testing.T) {
	body := `{"error":{"code":"InvalidTemplateDeployment","message":"see details","details":[{"code":"QuotaExceeded","message":"exceeding approved standardNCFamily Cores quota. Current Limit: 0"}]}}`
	f := fault("create vm m", "", answer(400, nil, body))
	if f.Kind != cloud.Quota || f.Quota == nil || f.Quota.Scope != "standardNCFamily" {
		t.Errorf("got %s, %+v, want the quota of standardNCFamily", f.Kind, f.Quota)
	}
}

func TestWritesAreNeverNotFound(t *testing.T) {
	err := answer(404, nil, armError("ResourceNotFound", "the subnet is not there"))
	if f := networkFault("create vm m", "", err); f.Kind != cloud.Transient {
		t.Errorf("network write: got %s, want Transient", f.Kind)
	}
	if f := writeFault("create vm m", "", err); f.Kind != cloud.Transient {
		t.Errorf("compute write: got %s, want Transient", f.Kind)
	}
	if f := networkFault("create vm m", "", answer(400, nil, armError("SubnetIsFull", "full"))); f.Kind != cloud.NoCapacity {
		t.Errorf("full subnet: got %s, want NoCapacity", f.Kind)
	}
}

func TestFaultTextHasTheKnownShape(t *testing.T) {
	f := fault("create vm m", "failed to create vm m: failed to create VM: cannot create vm: ", answer(409, nil, armError("OperationNotAllowed", "exceeding approved Total Regional Cores quota.")))
	dashes := strings.Repeat("-", 80)
	want := strings.Join([]string{
		"failed to create vm m: failed to create VM: cannot create vm: PUT https://management.azure.com/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m",
		dashes, "RESPONSE 409: Conflict", "ERROR CODE: OperationNotAllowed", dashes,
		"{", `  "error": {`, `    "code": "OperationNotAllowed",`, `    "message": "exceeding approved Total Regional Cores quota."`, "  }", "}", dashes,
	}, "\n")
	if d := cmp.Diff(want, f.Error()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}

func TestTimeoutsAreTransient(t *testing.T) {
	if f := fault("get vm m", "", context.DeadlineExceeded); f.Kind != cloud.Transient || f.Reason != "Timeout" {
		t.Errorf("got %s %s, want a transient timeout", f.Kind, f.Reason)
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(409, armError("OperationNotAllowed", "exceeding approved x quota. Current Limit: 99999999999999999999"))
	f.Add(400, "not json")
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 400 || status > 599 {
			return
		}
		got := fault("create vm m", "", answer(status, nil, body))
		if got.Kind == "" || got.Error() == "" {
			t.Fatalf("a fault without kind or text: %+v", got)
		}
		if status == http.StatusTooManyRequests && got.Kind != cloud.Throttled {
			t.Fatalf("status 429 is %s", got.Kind)
		}
	})
}

func TestNames(t *testing.T) {
	for _, tc := range []struct{ group, want string }{
		{"w-worker-eu1", "w-worker-eu1-as"},
		{"other", "w_other-as"},
		{"w-" + strings.Repeat("x", 90), "w-" + strings.Repeat("x", 75) + "-as"},
	} {
		if got := setName("w", tc.group); got != tc.want {
			t.Errorf("availability set of %s: got %s, want %s", tc.group, got, tc.want)
		}
	}
	id := "/subscriptions/ABC/resourceGroups/My-RG/providers/Microsoft.Compute/virtualMachines/M1"
	if got, want := providerID(id, "m1"), "azure:///subscriptions/abc/resourceGroups/my-rg/providers/Microsoft.Compute/virtualMachines/m1"; got != want {
		t.Errorf("provider id: got %s, want %s", got, want)
	}
	if got, want := parseID(id), (ref{"My-RG", "M1"}); got != want {
		t.Errorf("parsed id: got %v, want %v", got, want)
	}
}

func TestTagsMergeInOrder(t *testing.T) {
	in := cloud.Intent{Key: cloud.Key{UID: "u", Name: "m"}, Owner: "w", Tags: map[string]string{"a": "cluster", "b": "cluster"}}
	got, err := tags(in, map[string]string{"b": "spec"})
	if err != nil {
		t.Fatal(err)
	}
	plain := map[string]string{}
	for k, v := range got {
		plain[k] = *v
	}
	want := map[string]string{"a": "cluster", "b": "spec", "kubernetes.io_cluster.w": "owned", "millwright.io_key": "u"}
	if d := cmp.Diff(want, plain); d != "" {
		t.Errorf("tags (-want +got):\n%s", d)
	}
	_, err = tags(in, map[string]string{"A": "x"})
	if want := `Machine.Spec.ProviderSpec.Tags validation failed: found duplicate tag keys: "A" matches 2 keys`; cloud.KindOf(err) != cloud.Invalid || err.Error() != want {
		t.Errorf("duplicate: got %v, want %s", err, want)
	}
}
