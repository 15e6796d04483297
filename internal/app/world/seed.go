package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/config"
	"millwright.io/millwright/internal/operator"
	simworld "millwright.io/millwright/internal/sim/world"
	"millwright.io/millwright/internal/version"
)

// bootstrapTokenLife is that of the first-boot identity's token: a world
// should not need care while it is used.
const bootstrapTokenLife = 10 * 365 * 24 * time.Hour

// seedWorkers is how many requests seeding has under way.
const seedWorkers = 16

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
		configv1.Install, machinev1beta1.Install, machineconfigv1.Install, operatorv1.Install, operatorv1alpha1.Install,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// seed makes what an installer leaves. Definitions are brought up to date at
// each start; everything else is made once. Definitions that seeding does not
// need are installed beside it.
func (s *supervisor) seed(ctx context.Context) error {
	s.opts.Say("Installing definitions and namespaces")
	var namespaces []client.Object
	for _, ns := range operator.Namespaces() {
		namespaces = append(namespaces, simworld.Namespace(ns))
	}
	if err := s.createAll(ctx, namespaces); err != nil {
		return err
	}
	if err := s.installDefinitions(ctx, "machine", "openshift"); err != nil {
		return err
	}
	seeded := s.dir.state.Seeded
	configs, others := make(chan error, 1), make(chan error, 1)
	go func() {
		err := s.installDefinitions(ctx, "machineconfig")
		if err == nil && !seeded {
			err = s.seedMachineConfig(ctx)
		}
		configs <- err
		others <- s.installDefinitions(ctx, "clusterapi")
	}()
	if err := errors.Join(s.seedObjects(ctx, configs), <-others); err != nil {
		return err
	}
	s.dir.state.Seeded = true
	return s.dir.save()
}

// seedObjects makes everything but definitions. Machines wait for Machine Config's
// objects, which configs tells of: their user data come from them.
func (s *supervisor) seedObjects(ctx context.Context, configs <-chan error) error {
	if err := s.publishCloud(ctx); err != nil {
		return err
	}
	if err := s.registerFront(ctx); err != nil {
		return err
	}
	if s.dir.state.Seeded {
		return <-configs
	}
	s.opts.Say("Making what an installer leaves: cluster %s", s.params.InfraID)
	objects := append(simworld.Cluster(s.params, metav1.NewTime(s.clk.Now().UTC())), simworld.Identity()...)
	for _, ns := range []string{operator.NamespaceMachineAPI, operator.NamespaceCloudController} {
		objects = append(objects, simworld.CredentialsSecret(s.params, ns))
	}
	components, err := operator.Objects(operator.Params{Version: version.Version, InfraID: s.params.InfraID, Admission: s.opts.Admission})
	if err != nil {
		return err
	}
	if err := s.createAll(ctx, append(objects, components...)); err != nil {
		return err
	}
	if err := <-configs; err != nil {
		return err
	}
	if err := s.seedMachines(ctx); err != nil {
		return err
	}
	s.dir.state.Workers = s.opts.Workers
	return nil
}

// installDefinitions applies the CRDs of families and waits until they are
// served.
func (s *supervisor) installDefinitions(ctx context.Context, families ...string) error {
	crds, err := config.CRDs(families...)
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	objects := make([]client.Object, 0, len(crds))
	for _, c := range crds {
		objects = append(objects, c)
	}
	if err := s.createAll(ctx, objects); err != nil {
		return err
	}
	for _, c := range crds {
		if err := s.waitEstablished(ctx, c.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) waitEstablished(ctx context.Context, name string) error {
	var last string
	err := poll(ctx, 50*time.Millisecond, time.Minute, func() (bool, error) {
		var c apiextensionsv1.CustomResourceDefinition
		if err := s.kube.Get(ctx, client.ObjectKey{Name: name}, &c); err != nil {
			return false, fmt.Errorf("read definition %s: %w", name, err)
		}
		for _, cond := range c.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
			last = cond.Message
		}
		return false, nil
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("definition %s is not served after a minute: %s", name, last)
	}
	return err
}

// createAll creates objects, many at a time, rank by rank: what others refer
// to comes first.
func (s *supervisor) createAll(ctx context.Context, objects []client.Object) error {
	ranks := map[int][]client.Object{}
	for _, o := range objects {
		ranks[rank(o)] = append(ranks[rank(o)], o)
	}
	for r := range 3 {
		if err := parallel(seedWorkers, ranks[r], func(o client.Object) error { return s.create(ctx, o) }); err != nil {
			return err
		}
	}
	return nil
}

// rank is 0 for what defines names, 1 for what workloads read, 2 for them.
func rank(o client.Object) int {
	switch o.(type) {
	case *corev1.Namespace, *apiextensionsv1.CustomResourceDefinition:
		return 0
	case *appsv1.Deployment, *appsv1.DaemonSet:
		return 2
	default:
		return 1
	}
}

// create makes an object, and its status where it has one. An object that is
// there already stays as it is, except definitions, which follow the build.
func (s *supervisor) create(ctx context.Context, o client.Object) error {
	status := o.DeepCopyObject().(client.Object)
	err := s.kube.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		if crd, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
			return s.updateDefinition(ctx, crd)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("create %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	switch o.(type) {
	case *configv1.Infrastructure, *configv1.ClusterVersion:
		status.SetResourceVersion(o.GetResourceVersion())
		status.SetUID(o.GetUID())
		if err := s.kube.Status().Update(ctx, status); err != nil {
			return fmt.Errorf("write status of %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func (s *supervisor) updateDefinition(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	var have apiextensionsv1.CustomResourceDefinition
	if err := s.kube.Get(ctx, client.ObjectKeyFromObject(crd), &have); err != nil {
		return fmt.Errorf("read definition %s: %w", crd.Name, err)
	}
	before := have.DeepCopy()
	have.Spec, have.Labels, have.Annotations = crd.Spec, crd.Labels, crd.Annotations
	have.Spec.Conversion = before.Spec.Conversion
	patch := client.MergeFrom(before)
	if data, err := patch.Data(&have); err == nil && string(data) == "{}" {
		return nil
	}
	if err := s.kube.Patch(ctx, &have, patch); err != nil {
		return fmt.Errorf("update definition %s: %w", crd.Name, err)
	}
	return nil
}

// publishCloud tells the components where the simulated cloud is.
func (s *supervisor) publishCloud(ctx context.Context) error {
	for _, ns := range []string{operator.NamespaceMachineAPI, operator.NamespaceCloudController} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: operator.ConfigMapCloud}, Data: s.cloudEnv()}
		err := s.kube.Create(ctx, cm)
		if apierrors.IsAlreadyExists(err) {
			err = s.kube.Update(ctx, cm)
		}
		if err != nil {
			return fmt.Errorf("publish the cloud's endpoints in %s: %w", ns, err)
		}
	}
	return nil
}

// bootstrapToken returns a token of the first-boot identity.
func (s *supervisor) bootstrapToken(ctx context.Context) (string, error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: simworld.NamespaceMachineConfig, Name: simworld.NodeBootstrapper}}
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(bootstrapTokenLife.Seconds()))}}
	if err := s.kube.SubResource("token").Create(ctx, sa, req); err != nil {
		return "", fmt.Errorf("make first-boot token: %w", err)
	}
	return req.Status.Token, nil
}

var errTimeout = errors.New("timed out")

// poll asks until done, error, the limit or ctx's end.
func poll(ctx context.Context, every, limit time.Duration, done func() (bool, error)) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return errTimeout
		case <-tick.C:
		}
	}
}

// parallel runs do for each item, at most n at a time, and joins the errors.
func parallel[T any](n int, items []T, do func(T) error) error {
	errs := make([]error, len(items))
	slots := make(chan struct{}, n)
	done := make(chan struct{})
	for i, item := range items {
		go func() {
			slots <- struct{}{}
			errs[i] = do(item)
			<-slots
			done <- struct{}{}
		}()
	}
	for range items {
		<-done
	}
	return errors.Join(slices.DeleteFunc(errs, func(e error) bool { return e == nil })...)
}
