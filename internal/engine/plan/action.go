package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
)

// ObjectAction changes API objects of a dialect. Actions only name things;
// the dialect's binding knows how the objects look. Sealed.
//
//sumtype:decl
type ObjectAction interface {
	Action
	isObjectAction()
}

// NodeAction changes Nodes and what runs on them. Sealed.
//
//sumtype:decl
type NodeAction interface {
	Action
	isNodeAction()
}

// CloudAction changes instances. Sealed.
//
//sumtype:decl
type CloudAction interface {
	Action
	isCloudAction()
}

type (
	// CreateMachine makes a member of the decided set. Name is the whole
	// name. AlreadyExists with our owner reference counts as success.
	CreateMachine struct{ Name string }
	// DeleteMachine deletes a member, if it still has this UID.
	DeleteMachine struct{ Name, UID string }
	// AdoptMachine makes the decided set the controller of a Machine.
	AdoptMachine struct{ Name, UID string }
	// ReleaseMachine takes the decided set's owner reference off a Machine
	// that still has this UID; one that is gone is released.
	ReleaseMachine struct{ Name, UID string }
	// AddFinalizer puts the dialect's finalizer on the decided object.
	AddFinalizer struct{}
	// RemoveFinalizer takes it off again; the object may vanish.
	RemoveFinalizer struct{}
	// RecordInstance writes what the cloud told into the decided object's
	// metadata and spec: provider ID, labels and annotations of its dialect.
	RecordInstance struct{ Instance cloud.Instance }
	// ApproveRequest approves a certificate signing request.
	ApproveRequest struct{ Name, Reason, Message string }
	// DenyRequest denies it.
	DenyRequest struct{ Name, Reason, Message string }
	// MarkForRepair asks somebody else, by a mark on a Machine, to repair it.
	MarkForRepair struct{ Name, UID string }
	// CreateRepair makes the object by which somebody else repairs a Machine.
	// One that exists already is success.
	CreateRepair struct{ Name, UID string }
	// DeleteRepair deletes that object.
	DeleteRepair struct{ Name, UID string }
)

type (
	// CordonNode marks a Node unschedulable, naming By as the reason.
	CordonNode struct{ Node, By string }
	// UncordonNode makes it schedulable again, if By cordoned it.
	UncordonNode struct{ Node, By string }
	// EvictPod removes one pod through the eviction API.
	EvictPod struct {
		Namespace, Name, UID string
		Grace                time.Duration // < 0: the pod's own
	}
	// DeletePod removes one pod past the eviction API, if it still has this
	// UID: a pod that certainly does not run any more, or one that the
	// eviction API cannot take although its budgets allow it.
	DeletePod struct {
		Namespace, Name, UID string
		Grace                time.Duration // < 0: the pod's own
	}
	// LinkNode brings labels, annotations and taints onto a Node. Nothing is
	// removed. A taint is added unless one with the same key and effect is
	// there.
	LinkNode struct {
		Node        string
		Labels      map[string]string
		Annotations map[string]string
		Taints      []corev1.Taint
	}
	// DeleteNode deletes a Node, if it still has this UID.
	DeleteNode struct{ Node, UID string }
)

type (
	// CreateInstance makes the instance of the decided object; the binding
	// provides the intent.
	CreateInstance struct{ Key cloud.Key }
	// DeleteInstance takes one step of removing it.
	DeleteInstance struct{ Key cloud.Key }
)

func (CreateMachine) isAction()         {}
func (CreateMachine) isObjectAction()   {}
func (a CreateMachine) String() string  { return "create machine " + a.Name }
func (DeleteMachine) isAction()         {}
func (DeleteMachine) isObjectAction()   {}
func (a DeleteMachine) String() string  { return "delete machine " + a.Name }
func (AdoptMachine) isAction()          {}
func (AdoptMachine) isObjectAction()    {}
func (a AdoptMachine) String() string   { return "adopt machine " + a.Name }
func (ReleaseMachine) isAction()        {}
func (ReleaseMachine) isObjectAction()  {}
func (a ReleaseMachine) String() string { return "release machine " + a.Name }
func (AddFinalizer) isAction()          {}
func (AddFinalizer) isObjectAction()    {}
func (AddFinalizer) String() string     { return "add finalizer" }
func (RemoveFinalizer) isAction()       {}
func (RemoveFinalizer) isObjectAction() {}
func (RemoveFinalizer) String() string  { return "remove finalizer" }
func (RecordInstance) isAction()        {}
func (RecordInstance) isObjectAction()  {}
func (a RecordInstance) String() string { return "record instance " + a.Instance.Key.Name }
func (ApproveRequest) isAction()        {}
func (ApproveRequest) isObjectAction()  {}
func (a ApproveRequest) String() string { return "approve signing request " + a.Name }
func (DenyRequest) isAction()           {}
func (DenyRequest) isObjectAction()     {}
func (a DenyRequest) String() string    { return "deny signing request " + a.Name }
func (MarkForRepair) isAction()         {}
func (MarkForRepair) isObjectAction()   {}
func (a MarkForRepair) String() string  { return "mark machine " + a.Name + " for repair" }
func (CreateRepair) isAction()          {}
func (CreateRepair) isObjectAction()    {}
func (a CreateRepair) String() string   { return "create repair of machine " + a.Name }
func (DeleteRepair) isAction()          {}
func (DeleteRepair) isObjectAction()    {}
func (a DeleteRepair) String() string   { return "delete repair of machine " + a.Name }
func (CordonNode) isAction()            {}
func (CordonNode) isNodeAction()        {}
func (a CordonNode) String() string     { return "cordon node " + a.Node }
func (UncordonNode) isAction()          {}
func (UncordonNode) isNodeAction()      {}
func (a UncordonNode) String() string   { return "uncordon node " + a.Node }
func (EvictPod) isAction()              {}
func (EvictPod) isNodeAction()          {}
func (a EvictPod) String() string       { return fmt.Sprintf("evict pod %s/%s", a.Namespace, a.Name) }
func (DeletePod) isAction()             {}
func (DeletePod) isNodeAction()         {}
func (a DeletePod) String() string      { return fmt.Sprintf("delete pod %s/%s", a.Namespace, a.Name) }
func (LinkNode) isAction()              {}
func (LinkNode) isNodeAction()          {}
func (a LinkNode) String() string       { return "link node " + a.Node }
func (DeleteNode) isAction()            {}
func (DeleteNode) isNodeAction()        {}
func (a DeleteNode) String() string     { return "delete node " + a.Node }
func (CreateInstance) isAction()        {}
func (CreateInstance) isCloudAction()   {}
func (a CreateInstance) String() string { return "create instance " + a.Key.Name }
func (DeleteInstance) isAction()        {}
func (DeleteInstance) isCloudAction()   {}
func (a DeleteInstance) String() string { return "delete instance " + a.Key.Name }
