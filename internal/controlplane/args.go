package controlplane

import (
	"fmt"
	"strconv"
)

// Component names, as they appear in logs and errors and as the devplane's
// applets are called.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

const (
	frontProxyName = "front-proxy-client"

	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
	egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %q
- name: controlplane
  connection:
    proxyProtocol: Direct
- name: etcd
  connection:
    proxyProtocol: Direct
`
)

func loopbackURL(scheme string, port int) string {
	return scheme + "://127.0.0.1:" + strconv.Itoa(port)
}

func etcdArgs(o Options, p ports) []string {
	client, peer := loopbackURL("https", p.Etcd), loopbackURL("http", p.EtcdPeer)
	return []string{
		"--name=millwright",
		"--data-dir=" + o.path("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=millwright=" + peer,
		"--cert-file=" + o.path("pki", "etcd-server.crt"),
		"--key-file=" + o.path("pki", "etcd-server.key"),
		"--trusted-ca-file=" + o.path("pki", "etcd-ca.crt"),
		"--client-cert-auth=true",
		"--quota-backend-bytes=" + strconv.Itoa(4<<30),
		// A crash of the process loses nothing; only a crash of the host can,
		// and then a development cluster is made anew.
		"--unsafe-no-fsync",
	}
}

func apiServerArgs(o Options, p ports) []string {
	pki := func(name string) string { return o.path("pki", name) }
	args := []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.APIServer),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--etcd-servers=" + loopbackURL("https", p.Etcd),
		"--etcd-cafile=" + pki("etcd-ca.crt"),
		"--etcd-certfile=" + pki("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + pki("apiserver-etcd-client.key"),
		"--service-cluster-ip-range=" + o.ServiceCIDR,
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki("sa.key"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		// Aggregated APIs and webhooks are dialed at their endpoints: nothing
		// on the host routes service addresses.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1000",
		"--profiling=false",
	}
	if o.EgressSocket != "" {
		args = append(args, "--egress-selector-config-file="+o.path("egress.yaml"))
	}
	if o.AuditLog != "" {
		args = append(args, "--audit-policy-file="+o.path("audit-policy.yaml"), "--audit-log-path="+o.AuditLog)
	}
	return append(args, o.ExtraAPIServerArgs...)
}

// writeServerConfigs writes the files that apiServerArgs names.
func writeServerConfigs(o Options) error {
	if err := writeFile(o.path("audit-policy.yaml"), []byte(auditPolicy)); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	if err := writeFile(o.path("egress.yaml"), fmt.Appendf(nil, egressConfig, o.EgressSocket)); err != nil {
		return fmt.Errorf("write egress selection: %w", err)
	}
	return nil
}

func controllerManagerArgs(o Options, p ports) []string {
	args := []string{
		"--kubeconfig=" + o.path(ControllerManager+".kubeconfig"),
		"--authentication-kubeconfig=" + o.path(ControllerManager+".kubeconfig"),
		"--authorization-kubeconfig=" + o.path(ControllerManager+".kubeconfig"),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.ControllerManager),
		"--tls-cert-file=" + o.path("pki", ControllerManager+".crt"),
		"--tls-private-key-file=" + o.path("pki", ControllerManager+".key"),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		// With the default rate the ServiceAccount without which no pod can be
		// made appears five seconds later.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--cluster-signing-cert-file=" + o.path("pki", "ca.crt"),
		"--cluster-signing-key-file=" + o.path("pki", "ca.key"),
		"--root-ca-file=" + o.path("pki", "ca.crt"),
		"--service-account-private-key-file=" + o.path("pki", "sa.key"),
		"--service-cluster-ip-range=" + o.ServiceCIDR,
		"--allocate-node-cidrs=true",
		"--cluster-cidr=" + o.ClusterCIDR,
		"--node-cidr-mask-size=24",
		"--configure-cloud-routes=false",
		"--profiling=false",
	}
	if o.NodeMonitorGrace != 0 {
		args = append(args, "--node-monitor-grace-period="+o.NodeMonitorGrace.String())
	}
	return append(args, o.ExtraControllerManagerArgs...)
}

func schedulerArgs(o Options, p ports) []string {
	return append([]string{
		"--kubeconfig=" + o.path(Scheduler+".kubeconfig"),
		"--authentication-kubeconfig=" + o.path(Scheduler+".kubeconfig"),
		"--authorization-kubeconfig=" + o.path(Scheduler+".kubeconfig"),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.Scheduler),
		"--tls-cert-file=" + o.path("pki", Scheduler+".crt"),
		"--tls-private-key-file=" + o.path("pki", Scheduler+".key"),
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	}, o.ExtraSchedulerArgs...)
}
