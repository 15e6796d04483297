package fragment

import (
	"strings"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// maxMessage is how many bytes of a condition's message are kept; a list of all
// nodes of a large pool must not make the object too large to write.
const maxMessage = 32 << 10

// PoolCondition returns the condition of a type, nil when the pool has none.
func PoolCondition(pool *machineconfigv1.MachineConfigPool, kind machineconfigv1.MachineConfigPoolConditionType) *machineconfigv1.MachineConfigPoolCondition {
	for i := range pool.Status.Conditions {
		if pool.Status.Conditions[i].Type == kind {
			return &pool.Status.Conditions[i]
		}
	}
	return nil
}

// WithPoolCondition sets a condition as this API has always done: nothing when
// all is said already; else the condition moves to the end of the list, and its
// transition time moves with its status only. A message is cut after 32 KiB. cs
// is not changed.
func WithPoolCondition(cs []machineconfigv1.MachineConfigPoolCondition, o plan.Condition, now time.Time) []machineconfigv1.MachineConfigPoolCondition {
	next := machineconfigv1.MachineConfigPoolCondition{
		Type: machineconfigv1.MachineConfigPoolConditionType(o.Type), Status: o.Status, Reason: o.Reason, Message: o.Message,
		LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if len(next.Message) > maxMessage {
		next.Message = strings.ToValidUTF8(next.Message[:maxMessage], "")
	}
	out := make([]machineconfigv1.MachineConfigPoolCondition, 0, len(cs)+1)
	for _, c := range cs {
		if c.Type != next.Type {
			out = append(out, c)
			continue
		}
		if c.Status == next.Status {
			if c.Reason == next.Reason && c.Message == next.Message {
				return cs
			}
			next.LastTransitionTime = c.LastTransitionTime
		}
	}
	return append(out, next)
}
