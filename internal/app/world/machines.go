package world

import (
	"context"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/pki"
	"millwright.io/millwright/internal/provider/azure"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
	simworld "millwright.io/millwright/internal/sim/world"
)

// masterCertLife is that of the certificates an installer gives to the
// control plane's kubelets, since nobody is there yet to approve requests.
const masterCertLife = 10 * 365 * 24 * time.Hour

// seedMachines makes user data, control plane Machines with their VMs, and
// the worker MachineSets.
func (s *supervisor) seedMachines(ctx context.Context) error {
	token, err := s.bootstrapToken(ctx)
	if err != nil {
		return err
	}
	kubeconfig, err := simworld.BootstrapKubeconfig(s.plane.URL(), s.admin.CAData, token)
	if err != nil {
		return err
	}
	configs, cc, err := s.rendered(ctx)
	if err != nil {
		return fmt.Errorf("render the installer's configs: %w", err)
	}
	if err := s.infrastructureReady(ctx); err != nil {
		return err
	}
	if err := s.seedFirstBoot(ctx); err != nil {
		return err
	}
	var stub corev1.Secret
	if err := s.kube.Get(ctx, client.ObjectKey{Namespace: simworld.NamespaceMachineAPI, Name: "worker-user-data"}, &stub); err != nil {
		return fmt.Errorf("read user data of workers: %w", err)
	}
	var objects []client.Object
	sets, err := simworld.WorkerSets(s.params)
	if err != nil {
		return err
	}
	for _, set := range sets {
		objects = append(objects, set)
	}
	if err := s.createAll(ctx, objects); err != nil {
		return err
	}
	workers, err := s.seedWorkers(sets)
	if err != nil {
		return err
	}
	numbers := make([]int, simworld.ControlPlaneNodes+len(workers))
	for i := range numbers {
		numbers[i] = i
	}
	return parallel(seedWorkers, numbers, func(i int) error {
		if i < simworld.ControlPlaneNodes {
			return s.seedMaster(ctx, i, func(certs []simworld.File) ([]byte, error) {
				return masterIgnition(configs["master"], cc, kubeconfig, certs)
			})
		}
		return s.seedMachine(ctx, workers[i-simworld.ControlPlaneNodes], stub.Data["userData"])
	})
}

// seedWorkers returns the Machines that an installation's MachineSets have
// made long before the world begins. Fleets of hollow machines are left to the
// MachineSets themselves.
func (s *supervisor) seedWorkers(sets []*machinev1beta1.MachineSet) ([]*machinev1beta1.Machine, error) {
	var out []*machinev1beta1.Machine
	if s.opts.Machines == MachinesHollow {
		return nil, nil
	}
	for _, set := range sets {
		members, err := simworld.Members(set)
		if err != nil {
			return nil, err
		}
		out = append(out, members...)
	}
	for _, m := range out {
		s.seeded.Store(m.Name, true)
	}
	return out, nil
}

// seedMachine makes a Machine and orders its VM. It continues where an
// earlier, interrupted start stopped.
func (s *supervisor) seedMachine(ctx context.Context, m *machinev1beta1.Machine, userData []byte) error {
	err := s.kube.Create(ctx, m)
	if apierrors.IsAlreadyExists(err) {
		err = s.kube.Get(ctx, client.ObjectKeyFromObject(m), m)
	}
	if err != nil {
		return fmt.Errorf("create machine %s: %w", m.Name, err)
	}
	if err := s.orderVM(ctx, m, userData); err != nil {
		return fmt.Errorf("order vm %s: %w", m.Name, err)
	}
	return nil
}

// seedMaster makes one control plane Machine, its VM and its Node's roles.
func (s *supervisor) seedMaster(ctx context.Context, i int, config func(certs []simworld.File) ([]byte, error)) error {
	m, err := simworld.Master(s.params, i)
	if err != nil {
		return err
	}
	s.seeded.Store(m.Name, true)
	certs, err := s.masterCerts(m.Name)
	if err != nil {
		return err
	}
	ignition, err := config(certs)
	if err != nil {
		return err
	}
	if err := s.seedMachine(ctx, m, ignition); err != nil {
		return err
	}
	return s.labelMaster(ctx, m.Name)
}

// masterCerts is the kubelet's client certificate. Its serving certificate it
// asks for itself, as every node does.
func (s *supervisor) masterCerts(name string) ([]simworld.File, error) {
	user := "system:node:" + name
	certPEM, keyPEM, err := s.plane.CA().Issue(pki.Leaf{CommonName: user, Organizations: []string{"system:nodes"}, Client: true, TTL: masterCertLife})
	if err != nil {
		return nil, fmt.Errorf("issue client certificate of %s: %w", name, err)
	}
	return []simworld.File{{Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Mode: 0o600, Contents: append(certPEM, keyPEM...)}}, nil
}

// orderVM makes the VM with the same provider that the controllers use.
func (s *supervisor) orderVM(ctx context.Context, m *machinev1beta1.Machine, userData []byte) error {
	codec := azurespec.Codec{}
	spec, _, err := codec.Decode(m.Spec.ProviderSpec.Value.Raw)
	if err != nil {
		return err
	}
	secret := simworld.CredentialsSecret(s.params, m.Namespace)
	account := cloud.Account{Source: secret.Namespace + "/" + secret.Name, Data: map[string]cloud.Secret{}}
	for k, v := range secret.StringData {
		account.Data[k] = cloud.Secret(v)
	}
	c, err := azure.NewOpener(s.azureOptions()...).Open(ctx, account)
	if err != nil {
		return err
	}
	intent := cloud.Intent{
		Key:   cloud.Key{UID: string(m.UID), Name: m.Name, Scope: spec.Scope()},
		Owner: cloud.Owner(s.params.InfraID), Spec: spec, UserData: cloud.Secret(userData),
	}
	err = poll(ctx, 50*time.Millisecond, time.Minute, func() (bool, error) {
		i, err := c.Create(ctx, intent)
		if err != nil && cloud.KindOf(err) != cloud.Transient {
			return false, err
		}
		return err == nil && i.ID != "", nil
	})
	return err
}

// labelMaster gives the Node its roles as an installer's bootstrap does:
// the controllers that label Nodes run on control plane Nodes themselves.
func (s *supervisor) labelMaster(ctx context.Context, name string) error {
	return poll(ctx, 50*time.Millisecond, time.Minute, func() (bool, error) {
		var n corev1.Node
		err := s.kube.Get(ctx, client.ObjectKey{Name: name}, &n)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read node %s: %w", name, err)
		}
		before := n.DeepCopy()
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels["node-role.kubernetes.io/master"] = ""
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node-role.kubernetes.io/master", Effect: corev1.TaintEffectNoSchedule})
		err = s.kube.Patch(ctx, &n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return false, nil // the kubelet writes its Node as well
		}
		if err != nil {
			return false, fmt.Errorf("label node %s: %w", name, err)
		}
		return true, nil
	})
}
