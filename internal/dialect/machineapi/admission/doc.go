// Package admission judges Machines, MachineSets and ControlPlaneMachineSets on their way into the API
// server: it fills in what their authors may leave out, and finds what can
// never work, in the original's words where the original finds it too. What is
// only suspicious, not there yet or unreadable is a warning, since files of one
// folder arrive in any order.
//
// It decides nothing about the outcome: a Review returns Problems, and whoever
// serves it applies the modes of the rules and the accepted risks. It reads the
// API server, one Secret and the cloud's catalogue within a second, and must
// never write anything, nor keep anything out for a reason that was there
// before the change under review.
//
//	r := admission.New(admission.Deps{…})
//	verdict, err := r.Reviews()[admission.PathValidateMachine](ctx, request)
package admission

//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=get;list;watch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures;dnses,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=openshift-machine-api
