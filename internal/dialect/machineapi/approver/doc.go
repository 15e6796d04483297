// Package approver holds the two controllers that answer certificate signing
// requests of nodes. machine-approver-controller answers kubelets: a new
// machine's first client certificate and every serving certificate.
// node-client-approver answers the components on a node that have short-lived
// client certificates of their own. What is approved is decided in engine/csr;
// this package finds the machines that matter and writes the answer.
//
// It writes one approval per request and nothing else. It must never answer a
// request that has an answer, nor read a private key.
//
// A request that cannot be approved yet waits for its machine: when a
// Machine's addresses or node change, the pending requests of that name are
// looked at again. Nothing polls.
package approver

//+kubebuilder:rbac:groups="",resources=configmaps,resourceNames=csr-controller-ca,verbs=get
//+kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
//+kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
//+kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kubelet-serving;kubernetes.io/kube-apiserver-client-kubelet;kubernetes.io/kube-apiserver-client,verbs=approve
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-cluster-machine-approver
