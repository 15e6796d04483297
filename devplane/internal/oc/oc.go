// Package oc is a small oc: kubectl's command tree under that name, with the
// node commands where OpenShift users look for them (oc adm cordon, drain, …)
// and oc debug node/NAME.
//
// It talks to the API server as any client does and keeps no state. It must
// never grow commands of its own making: what it has is what users of oc know.
package oc

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/certificates"
	"k8s.io/kubectl/pkg/cmd/drain"
	"k8s.io/kubectl/pkg/cmd/taint"
	"k8s.io/kubectl/pkg/cmd/top"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// moved are kubectl's commands that oc keeps under adm or replaces.
var moved = []string{"cordon", "uncordon", "drain", "taint", "top", "certificate", "debug"}

// New returns the command tree for args, args[0] being the program's name. A
// command that it does not know is looked for as a plugin (oc-NAME, then
// kubectl-NAME) and, if there is one, replaces the process.
func New(args []string) *cobra.Command {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	flags := genericclioptions.NewConfigFlags(true).
		WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWarningPrinter(streams)
	root := build(args, flags, streams)
	if err := runPlugin(root, args); err != nil {
		fmt.Fprintf(streams.ErrOut, "Error: %v\n", err)
		os.Exit(1)
	}
	return root
}

func build(args []string, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	root := kubectl.NewKubectlCommand(kubectl.KubectlOptions{Arguments: args, ConfigFlags: flags, IOStreams: streams})
	root.Use = "oc"
	root.Short = "OpenShift's command line for the development control plane"
	root.Long = "OpenShift's command line, as far as the development control plane needs it: kubectl's\n" +
		"commands, the node commands under \"oc adm\", and \"oc debug node/NAME\"."
	for _, name := range moved {
		for _, c := range root.Commands() {
			if c.Name() == name {
				// The help groups keep a reference of their own, hence Hidden.
				c.Hidden = true
				root.RemoveCommand(c)
			}
		}
	}
	rename(root, "oc")
	f := cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(flags))
	root.AddCommand(newAdm(f, streams), newDebug(f, streams))
	return root
}

func newAdm(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	adm := &cobra.Command{
		Use:   "adm",
		Short: "Tools for managing a cluster",
		Long:  "Commands for the administrator of a cluster: take nodes out of service and back, and look at their load.",
		Run:   cmdutil.DefaultSubCommandRun(streams.ErrOut),
	}
	adm.AddCommand(
		drain.NewCmdCordon(f, streams),
		drain.NewCmdUncordon(f, streams),
		drain.NewCmdDrain(f, streams),
		taint.NewCmdTaint(f, streams),
		top.NewCmdTop(f, streams),
		certificates.NewCmdCertificate(f, streams),
	)
	for _, c := range adm.Commands() {
		rename(c, "oc adm")
	}
	return adm
}

// rename replaces kubectl by name in the texts of c and below.
func rename(c *cobra.Command, name string) {
	for _, text := range []*string{&c.Short, &c.Long, &c.Example} {
		*text = strings.ReplaceAll(*text, "kubectl ", name+" ")
	}
	for _, sub := range c.Commands() {
		rename(sub, name)
	}
}

// runPlugin hands over to a plugin when no command of root is meant. It
// returns when there is no such plugin.
func runPlugin(root *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	if _, _, err := root.Find(args[1:]); err == nil {
		return nil
	}
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		switch arg {
		case "help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return nil
		}
		break
	}
	return kubectl.HandlePluginCommand(kubectl.NewDefaultPluginHandler([]string{"oc", "kubectl"}), args[1:], 1)
}
