// Command millwright-devplane is a Kubernetes control plane for laptops and
// tests in one file: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, and the clients kubectl and oc. The applet is the name it is
// called by, or its first argument.
//
// It decides nothing: every applet is the upstream program with its own flags.
// Only two things are ours. Server applets die with the process that started
// them, so that a killed supervisor leaves nothing behind, and oc is kubectl's
// command tree in the shape that OpenShift users know. It must never serve
// production: it exists to be started and thrown away.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	// Credential plugins that a kubeconfig may name.
	_ "k8s.io/client-go/plugin/pkg/client/auth"

	"millwright.io/millwright/devplane/internal/oc"
)

const program = "millwright-devplane"

// applet is one program of the binary. Its run reads os.Args and returns the
// exit code.
type applet struct {
	name   string
	server bool
	run    func() int
}

func applets() []applet {
	return []applet{
		{"etcd", true, func() int { etcdmain.Main(os.Args); return 0 }},
		{"kube-apiserver", true, func() int { return cli.Run(apiserver.NewAPIServerCommand()) }},
		{"kube-controller-manager", true, func() int { return cli.Run(kcm.NewControllerManagerCommand()) }},
		{"kube-scheduler", true, func() int { return cli.Run(scheduler.NewSchedulerCommand()) }},
		{"kubectl", false, func() int {
			quiet()
			return client(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
		}},
		{"oc", false, func() int {
			quiet()
			return client(cli.RunNoErrOutput(oc.New(os.Args)))
		}},
	}
}

func main() {
	name := filepath.Base(os.Args[0])
	chosen := find(name)
	if chosen == nil && len(os.Args) > 1 {
		name = os.Args[1]
		if chosen = find(name); chosen != nil {
			os.Args = os.Args[1:]
		}
	}
	if chosen == nil {
		os.Exit(usage(name))
	}
	if chosen.server {
		if err := dieWithParent(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	}
	os.Exit(chosen.run())
}

func find(name string) *applet {
	for _, a := range applets() {
		if a.name == name {
			return &a
		}
	}
	return nil
}

// usage prints the applets. Asking for help is no fault; a name that is no
// applet is wrong usage.
func usage(name string) int {
	out, code := io.Writer(os.Stderr), 2
	switch name {
	case "-h", "--help", "help":
		out, code = os.Stdout, 0
	case program:
	default:
		fmt.Fprintf(out, "%s: unknown applet %q\n", program, name)
	}
	names := []string{}
	for _, a := range applets() {
		names = append(names, a.name)
	}
	fmt.Fprintf(out, "usage: %s APPLET [argument...], or call it by a link named APPLET\napplets: %s\n", program, strings.Join(names, ", "))
	return code
}

// quiet sets klog's level before the command tree is built, because building
// it already logs.
func quiet() {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
}

// client prints a client's error as kubectl does and ends with its code.
func client(err error) int {
	if err != nil {
		cmdutil.CheckErr(err)
	}
	return 0
}
