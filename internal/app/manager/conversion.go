package manager

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"millwright.io/millwright/config"
	"millwright.io/millwright/internal/dialect/clusterapi/convert"
	"millwright.io/millwright/internal/webhook"
)

// pathConvert is where the definitions of Cluster API's kinds ask for their
// other version.
const pathConvert = "/convert"

// conversion returns the converter of Cluster API's kinds. It learns contract
// versions from the labels of definitions and wakes the authority when one
// changes.
func conversion(e env, authority *webhook.Authority) (http.Handler, error) {
	contracts := &convert.Contracts{}
	informer, err := e.mgr.GetCache().GetInformer(e.ctx, webhook.Definitions(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch definitions: %w", err)
	}
	learn := func(obj any) {
		if m, ok := obj.(metav1.Object); ok {
			contracts.Set(m.GetName(), m.GetLabels())
			if m.GetLabels()[webhook.LabelInject] != "" {
				authority.Look()
			}
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    learn,
		UpdateFunc: func(_, obj any) { learn(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if m, ok := obj.(metav1.Object); ok {
				contracts.Forget(m.GetName())
			}
		},
	}); err != nil {
		return nil, fmt.Errorf("watch definitions: %w", err)
	}
	crds, err := config.CRDs("clusterapi")
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	c, err := convert.New(crds, contracts.Version)
	if err != nil {
		return nil, fmt.Errorf("set up conversion: %w", err)
	}
	return c, nil
}
