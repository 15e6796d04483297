package fragment

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
)

// Involved returns a copy of a pool or a Node as events speak of it: they are
// in the namespace of the components, where their users look, although such
// objects have none.
func Involved(obj client.Object) client.Object {
	c, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return obj
	}
	c.SetNamespace(wire.Namespace)
	return c
}
