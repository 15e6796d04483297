package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	coordclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// callTimeout bounds every single request to the API server.
const callTimeout = 15 * time.Second

// nodeFacts are what a Node says about its machine; rooted and hollow
// kubelets fill them from their configurations.
type nodeFacts struct {
	Name            string
	Labels          map[string]string
	Annotations     map[string]string
	Taints          []corev1.Taint
	Addresses       []corev1.NodeAddress
	ProviderID      string
	External        bool // somebody else sets providerID and addresses
	Port            int
	Capacity        corev1.ResourceList
	Info            corev1.NodeSystemInfo
	HeartbeatAtMost time.Duration // a status is written at least this often
}

// nodeAgent keeps one Node and its Lease alive.
type nodeAgent struct {
	facts nodeFacts
	core  coreclient.CoreV1Interface
	coord coordclient.CoordinationV1Interface
	clock clock.PassiveClock

	uid      types.UID
	prevBoot string         // boot ID the Node had when it was registered anew
	lease    *coordv1.Lease // as last written by us
}

func newNodeAgent(cfg *rest.Config, facts nodeFacts, clk clock.PassiveClock) (*nodeAgent, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the priority and fairness of the API server rule here
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client of node %s: %w", facts.Name, err)
	}
	core, err := coreclient.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("make client of node %s: %w", facts.Name, err)
	}
	coord, err := coordclient.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("make client of node %s: %w", facts.Name, err)
	}
	return &nodeAgent{facts: facts, core: core, coord: coord, clock: clk}, nil
}

// newNode is the Node at registration.
func newNode(f nodeFacts, now time.Time) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Name, Labels: nodeLabels(f), Annotations: map[string]string{
		"volumes.kubernetes.io/controller-managed-attach-detach": "true",
	}}}
	maps.Copy(n.Annotations, f.Annotations)
	n.Spec.Taints = slices.Clone(f.Taints)
	if f.External {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
		if ip := internalIP(f.Addresses); ip != "" {
			n.Annotations["alpha.kubernetes.io/provided-node-ip"] = ip
		}
	} else {
		n.Spec.ProviderID = f.ProviderID
	}
	n.Status = nodeStatus(f, corev1.NodeStatus{}, now)
	return n
}

func nodeLabels(f nodeFacts) map[string]string {
	labels := map[string]string{
		corev1.LabelHostname:      f.Name,
		corev1.LabelOSStable:      "linux",
		corev1.LabelArchStable:    runtime.GOARCH,
		"beta.kubernetes.io/os":   "linux",
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, f.Labels)
	return labels
}

// nodeStatus is the status that f asks for on top of what prev holds. It
// equals prev, heartbeats included, when nothing has to be written at now.
func nodeStatus(f nodeFacts, prev corev1.NodeStatus, now time.Time) corev1.NodeStatus {
	out := *prev.DeepCopy()
	out.Capacity, out.Allocatable = f.Capacity.DeepCopy(), f.Capacity.DeepCopy()
	out.NodeInfo = f.Info
	out.DaemonEndpoints.KubeletEndpoint.Port = int32(f.Port)
	if !f.External || len(out.Addresses) == 0 {
		out.Addresses = slices.Clone(f.Addresses)
	}
	want := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	for _, c := range want {
		i := slices.IndexFunc(out.Conditions, func(have corev1.NodeCondition) bool { return have.Type == c.Type })
		c.LastTransitionTime, c.LastHeartbeatTime = stamp(now), stamp(now)
		if i < 0 {
			out.Conditions = append(out.Conditions, c)
			continue
		}
		have := out.Conditions[i]
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
			if have.Reason == c.Reason && now.Sub(have.LastHeartbeatTime.Time) < f.HeartbeatAtMost {
				c.LastHeartbeatTime = have.LastHeartbeatTime
			}
		}
		out.Conditions[i] = c
	}
	return out
}

// register creates the Node, or takes over the one that is there: its labels
// and status become ours, its taints and addresses stay.
func (a *nodeAgent) register(ctx context.Context) error {
	want := newNode(a.facts, a.clock.Now())
	node, err := a.core.Nodes().Create(ctx, want, metav1.CreateOptions{})
	if err == nil {
		a.uid = node.UID
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", a.facts.Name, err)
	}
	node, err = a.core.Nodes().Get(ctx, a.facts.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", a.facts.Name, err)
	}
	a.uid, a.prevBoot = node.UID, node.Status.NodeInfo.BootID
	after := node.DeepCopy()
	for k, v := range want.Labels {
		metav1.SetMetaDataLabel(&after.ObjectMeta, k, v)
	}
	if !equality.Semantic.DeepEqual(node.Labels, after.Labels) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": want.Labels}})
		if err != nil {
			return fmt.Errorf("encode labels of node %s: %w", a.facts.Name, err)
		}
		if node, err = a.core.Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label node %s: %w", a.facts.Name, err)
		}
	}
	return a.report(ctx, node)
}

// report writes the status if it differs from that of node or is due.
func (a *nodeAgent) report(ctx context.Context, node *corev1.Node) error {
	after := node.DeepCopy()
	after.Status = nodeStatus(a.facts, node.Status, a.clock.Now())
	if equality.Semantic.DeepEqual(node.Status, after.Status) {
		return nil
	}
	patch, err := statusPatch(node, after, node.Status, after.Status, corev1.Node{})
	if err != nil {
		return fmt.Errorf("compute status patch of node %s: %w", node.Name, err)
	}
	if _, err := a.core.Nodes().PatchStatus(ctx, node.Name, patch); err != nil {
		return fmt.Errorf("report status of node %s: %w", node.Name, err)
	}
	return nil
}

// statusPatch is a strategic merge patch of nothing but the status, bound to
// the object's UID.
func statusPatch(before, after metav1.Object, statusBefore, statusAfter, schema any) ([]byte, error) {
	type envelope struct {
		Metadata map[string]any `json:"metadata"`
		Status   any            `json:"status"`
	}
	old, err := json.Marshal(envelope{Status: statusBefore})
	if err != nil {
		return nil, fmt.Errorf("encode status of %s: %w", before.GetName(), err)
	}
	want, err := json.Marshal(envelope{Metadata: map[string]any{"uid": after.GetUID()}, Status: statusAfter})
	if err != nil {
		return nil, fmt.Errorf("encode status of %s: %w", after.GetName(), err)
	}
	return strategicpatch.CreateTwoWayMergePatch(old, want, schema)
}

// renew writes the Lease: one update a time, a create when there is none.
func (a *nodeAgent) renew(ctx context.Context) error {
	leases := a.coord.Leases(leaseNamespace)
	now := metav1.NewMicroTime(a.clock.Now())
	if a.lease == nil {
		got, err := leases.Get(ctx, a.facts.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			got, err = leases.Create(ctx, a.newLease(now), metav1.CreateOptions{})
			if err == nil {
				a.lease = got
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("make lease of node %s: %w", a.facts.Name, err)
		}
		a.lease = got
	}
	next := a.lease.DeepCopy()
	next.OwnerReferences = a.newLease(now).OwnerReferences
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &a.facts.Name, ptr.To[int32](leaseSeconds), &now
	got, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		a.lease = nil // read it anew next time
		return fmt.Errorf("renew lease of node %s: %w", a.facts.Name, err)
	}
	a.lease = got
	return nil
}

func (a *nodeAgent) newLease(now metav1.MicroTime) *coordv1.Lease {
	return &coordv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.facts.Name, Namespace: leaseNamespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: a.facts.Name, UID: a.uid}},
		},
		Spec: coordv1.LeaseSpec{
			HolderIdentity: &a.facts.Name, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now,
		},
	}
}

func internalIP(list []corev1.NodeAddress) string {
	for _, a := range list {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

func (c *Config) facts() nodeFacts {
	addrs := slices.Clone(c.Addresses)
	if !slices.ContainsFunc(addrs, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeHostName }) {
		addrs = append(addrs, corev1.NodeAddress{Type: corev1.NodeHostName, Address: c.NodeName})
	}
	return nodeFacts{
		Name: c.NodeName, Labels: c.NodeLabels, Annotations: c.Annotations, Taints: c.Taints,
		Addresses: addrs, ProviderID: c.ProviderID, External: c.ProviderExternal, Port: c.Port,
		Capacity: c.Capacity, HeartbeatAtMost: c.StatusInterval,
		Info: corev1.NodeSystemInfo{
			MachineID: c.MachineID, SystemUUID: c.MachineID, BootID: c.BootID,
			KernelVersion: c.KernelVersion, OSImage: c.OSImage, OperatingSystem: "linux", Architecture: runtime.GOARCH,
			ContainerRuntimeVersion: "millwright://" + c.Version, KubeletVersion: c.KubeletVersion,
		},
	}
}
