package azure

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"millwright.io/millwright/internal/cloud"
)

// shelfLife is how long a region's catalogue is trusted.
const shelfLife = 10 * time.Minute

// alignedSet is the kind of availability set whose disks follow its VMs.
const alignedSet = "Aligned"

// market caches the sizes of regions; concurrent readers share one request.
type market struct {
	mu      sync.Mutex
	entries map[string]*shelf
}

// shelf is the catalogue of one region; ready is closed when it is filled.
type shelf struct {
	ready chan struct{}
	at    time.Time
	skus  []*armcompute.ResourceSKU
	// faultDomains is how many an availability set may have; 0: not told.
	faultDomains int
	err          error
}

// skusOf returns the VM sizes of a region, restricted ones included. The
// request outlives the caller that began it only by the cloud's own timeout.
func (c *Cloud) skusOf(ctx context.Context, region string) ([]*armcompute.ResourceSKU, error) {
	s, err := c.shelfOf(ctx, region)
	if err != nil {
		return nil, err
	}
	return s.skus, nil
}

func (c *Cloud) shelfOf(ctx context.Context, region string) (*shelf, error) {
	region = strings.ToLower(strings.ReplaceAll(region, " ", ""))
	c.market.mu.Lock()
	s := c.market.entries[region]
	if s == nil || c.clk.Since(s.at) > shelfLife {
		s = &shelf{ready: make(chan struct{}), at: c.clk.Now()}
		c.market.entries[region] = s
		go c.stock(context.WithoutCancel(ctx), region, s)
	}
	c.market.mu.Unlock()
	select {
	case <-s.ready:
		return s, s.err
	case <-ctx.Done():
		return nil, fault("list vm sizes of "+region, "", ctx.Err())
	}
}

func (c *Cloud) stock(ctx context.Context, region string, s *shelf) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	defer close(s.ready)
	filter := fmt.Sprintf("location eq '%s'", region)
	for pager := c.skus.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			s.err = fault("list vm sizes of "+region, "", err)
			c.market.mu.Lock()
			delete(c.market.entries, region) // failures are not kept
			c.market.mu.Unlock()
			return
		}
		for _, sku := range page.Value {
			switch value(sku.ResourceType) {
			case "virtualMachines":
				if sku.Name != nil {
					s.skus = append(s.skus, sku)
				}
			case "availabilitySets":
				if value(sku.Name) == alignedSet {
					s.faultDomains, _ = strconv.Atoi(capability(sku, "MaximumPlatformFaultDomainCount"))
				}
			}
		}
	}
	sort.Slice(s.skus, func(i, j int) bool { return *s.skus[i].Name < *s.skus[j].Name })
}

// Sizes implements cloud.Catalog. Sizes that the subscription may not buy in
// the region are left out, and so are the zones that do not sell them.
func (c *Cloud) Sizes(ctx context.Context, region string) ([]cloud.Size, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	skus, err := c.skusOf(ctx, region)
	if err != nil {
		return nil, err
	}
	var out []cloud.Size
	for _, sku := range skus {
		if !restricted(sku) {
			out = append(out, sizeOf(sku))
		}
	}
	return out, nil
}

// restricted says that the subscription cannot buy a size anywhere here.
func restricted(sku *armcompute.ResourceSKU) bool {
	return slices.ContainsFunc(sku.Restrictions, func(r *armcompute.ResourceSKURestrictions) bool {
		return value(r.Type) == armcompute.ResourceSKURestrictionsTypeLocation
	})
}

func sizeOf(sku *armcompute.ResourceSKU) cloud.Size {
	vcpus, _ := strconv.Atoi(capability(sku, "vCPUs"))
	memory, _ := strconv.ParseFloat(capability(sku, "MemoryGB"), 64)
	gpus, _ := strconv.Atoi(capability(sku, "GPUs"))
	arch := "amd64"
	if strings.EqualFold(capability(sku, "CpuArchitectureType"), "Arm64") {
		arch = "arm64"
	}
	return cloud.Size{Name: *sku.Name, Family: value(sku.Family), VCPUs: vcpus, MemoryMiB: int64(math.Round(memory * 1024)),
		GPUs: gpus, Arch: arch, Zones: zonesOf(sku)}
}

func capability(sku *armcompute.ResourceSKU, name string) string {
	for _, c := range sku.Capabilities {
		if strings.EqualFold(value(c.Name), name) {
			return value(c.Value)
		}
	}
	return ""
}

// zonesOf returns the zones that sell a size, sorted.
func zonesOf(sku *armcompute.ResourceSKU) []string {
	var out []string
	for _, l := range sku.LocationInfo {
		for _, z := range l.Zones {
			out = append(out, value(z))
		}
	}
	for _, r := range sku.Restrictions {
		if value(r.Type) != armcompute.ResourceSKURestrictionsTypeZone || r.RestrictionInfo == nil {
			continue
		}
		for _, z := range r.RestrictionInfo.Zones {
			out = slices.DeleteFunc(out, func(s string) bool { return s == value(z) })
		}
	}
	sort.Strings(out)
	return slices.Compact(out)
}

// sku finds a size by name, as ARM compares names.
func (c *Cloud) sku(ctx context.Context, region, size, op string) (*armcompute.ResourceSKU, error) {
	all, err := c.skusOf(ctx, region)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(all))
	for _, s := range all {
		if strings.EqualFold(*s.Name, size) {
			return s, nil
		}
		names = append(names, *s.Name)
	}
	return nil, &cloud.Fault{Kind: cloud.Invalid, Op: op, Reason: "SkuNotFound", Message: fmt.Sprintf(
		"failed to obtain instance type information for VMSize '%s' from Azure: resource SKU with name '%s' and category 'virtualMachines'"+
			" not found in location '%s': resource not found: The valid virtualMachines in the current region are: %v."+
			" Find out more on the valid resources in each region at https://aka.ms/azure-regionservices", size, size, region, names)}
}

// regionLister reads the regions of the subscription; the SDK's module for
// that would be a whole dependency for one GET.
type regionLister struct{ client *arm.Client }

const apiVersionLocations = "2022-12-01"

// Regions implements cloud.Catalog.
func (c *Cloud) Regions(ctx context.Context) ([]string, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	const op = "list regions"
	cl := c.regions.client
	req, err := runtime.NewRequest(ctx, http.MethodGet, runtime.JoinPaths(cl.Endpoint(), "/subscriptions/"+c.subscription+"/locations"))
	if err != nil {
		return nil, fault(op, "", err)
	}
	q := req.Raw().URL.Query()
	q.Set("api-version", apiVersionLocations)
	req.Raw().URL.RawQuery = q.Encode()
	resp, err := cl.Pipeline().Do(req)
	if err != nil {
		return nil, fault(op, "", err)
	}
	if !runtime.HasStatusCode(resp, http.StatusOK) {
		return nil, fault(op, "", runtime.NewResponseError(resp))
	}
	var body struct {
		Value []struct {
			Name string `json:"name"`
		} `json:"value"`
	}
	if err := runtime.UnmarshalAsJSON(resp, &body); err != nil {
		return nil, fault(op, "", err)
	}
	var out []string
	for _, v := range body.Value {
		out = append(out, v.Name)
	}
	sort.Strings(out)
	return out, nil
}
