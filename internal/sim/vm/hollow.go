package vm

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"millwright.io/millwright/internal/agent"
	"millwright.io/millwright/internal/sim/kubelet"
)

// HollowNode is the Joiner of hollow machines: the same first boot and the
// same certificates as ConfigNode, and a kubelet that is one member of a pool.
type HollowNode struct {
	ConfigNode
	Pool *kubelet.Pool
	// Agents run the node agents; nil: there are none.
	Agents *agent.Pool
}

// Join implements Joiner.
func (n *HollowNode) Join(ctx context.Context, m Machine, up func()) error {
	boot, err := bootstrapConfig(m.Disk)
	if err != nil {
		return err
	}
	cfg, err := n.clientConfig(ctx, boot, m)
	if err != nil {
		return err
	}
	err = n.Pool.AddNode(kubelet.HollowNode{
		NodeName:         m.Name,
		NodeLabels:       map[string]string{"node.openshift.io/os_id": "rhcos"},
		Addresses:        []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.PrivateIP}, {Type: corev1.NodeHostName, Address: m.Name}},
		ProviderExternal: true,
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(m.VCPUs), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(m.MemoryMiB<<20, resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(250, resource.DecimalSI),
		},
		OSImage: osImage(m.Disk), BootID: m.BootID,
		MachineID: strings.ReplaceAll(m.UUID, "-", ""), KubeletVersion: n.KubeletVersion,
	})
	if err != nil {
		return err
	}
	defer n.Pool.RemoveNode(m.Name)
	up()
	if d, ok := m.Disk.(*hollowDisk); ok && n.Agents != nil {
		n.Agents.Put(m.Name, d.mem)
		defer n.Agents.Remove(m.Name)
	}
	n.certify(ctx, cfg, m, &servingCert{})
	<-ctx.Done()
	return ctx.Err()
}
