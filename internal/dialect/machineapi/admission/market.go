package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"millwright.io/millwright/internal/cloud"
)

// patience is how long a review waits for what is outside of the cluster.
const patience = time.Second

// market adds to sc what the spec's cloud sells, as far as it is known within
// a second; the problems say what could not be learned.
func (r *Reviewer) market(ctx context.Context, spec cloud.Spec, namespace string, sc cloud.SpecContext) (cloud.SpecContext, []cloud.Problem) {
	_, ref := r.Codec.References(spec)
	if ref.Name == "" {
		return sc, nil // the codec says so
	}
	if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	account, err := r.secrets.get(ctx, types.NamespacedName(ref))
	switch {
	case apierrors.IsNotFound(err):
		return sc, []cloud.Problem{credentials(ref, "not found. Expected CredentialsSecret to exist")}
	case err != nil:
		return sc, []cloud.Problem{credentials(ref, "failed to get credentialsSecret: "+err.Error())}
	case r.Opener == nil:
		return sc, nil
	}
	region, _, _ := r.Codec.Place(spec)
	sc.Regions, sc.Sizes, err = r.goods(ctx, account, region)
	if err != nil {
		return sc, []cloud.Problem{{Rule: RuleCatalog, Warning: true, Detail: fmt.Sprintf(
			"providerSpec: location, zone and size were not compared with what the cloud sells: %v", err)}}
	}
	return sc, nil
}

func credentials(ref cloud.SecretRef, detail string) cloud.Problem {
	return cloud.Problem{Rule: RuleCredentials, Type: cloud.ProblemInvalid, Field: "providerSpec.credentialsSecret",
		Value: strconv.Quote(ref.Name), Detail: detail, Warning: true}
}

// goods returns the account's regions and the sizes sold in one of them. A
// region that is not among them has none to ask for.
func (r *Reviewer) goods(ctx context.Context, account cloud.Account, region string) ([]string, []cloud.Size, error) {
	c, err := r.Opener.Open(ctx, account)
	if err != nil {
		return nil, nil, err
	}
	catalog, ok := c.(cloud.Catalog)
	if !ok {
		return nil, nil, nil
	}
	id := fingerprint(account)
	regions, err := r.shelves.regions.get(ctx, shelf{account: id}, catalog.Regions)
	if err != nil || region == "" {
		return regions, nil, err
	}
	plain := strings.ToLower(strings.ReplaceAll(region, " ", ""))
	if !slices.Contains(regions, plain) {
		return regions, nil, nil
	}
	sizes, err := r.shelves.sizes.get(ctx, shelf{account: id, region: plain}, func(ctx context.Context) ([]cloud.Size, error) {
		return catalog.Sizes(ctx, plain)
	})
	return regions, sizes, err
}
