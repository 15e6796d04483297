package oc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/remotecommand"
	watchtools "k8s.io/client-go/tools/watch"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/kubectl/pkg/cmd/exec"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/term"
	"k8s.io/utils/ptr"
)

const (
	debugContainer = "container-00"
	hostMount      = "/host"
	// debugImage names no image that anybody pulls: a simulated machine gives
	// its own root to every container. On a real cluster use --image.
	debugImage = "tools:debug"
	// startLimit bounds the wait for the pod, removeLimit its removal.
	startLimit  = 5 * time.Minute
	removeLimit = 30 * time.Second
)

// debugOptions are the flags and arguments of oc debug.
type debugOptions struct {
	node      string
	command   []string
	namespace string
	image     string
	tty       bool
	noTTY     bool
	quiet     bool
	preserve  bool

	streams genericiooptions.IOStreams
	client  kubernetes.Interface
	config  *rest.Config
	// exec runs the command in a running pod; a test replaces it.
	exec func(ctx context.Context, pod *corev1.Pod, command []string, tty bool) error
}

func newDebug(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &debugOptions{streams: streams, image: debugImage}
	cmd := &cobra.Command{
		Use:   "debug node/NAME [flags] [-- COMMAND [argument...]]",
		Short: "Open a shell, or run a command, in the root of a node",
		Long: "Start a privileged pod on the node, with the node's file system under /host, and run a shell\n" +
			"or the given command in it. The pod is removed afterwards.",
		Example: "  # Open a shell on a node\n  oc debug node/worker-0\n\n" +
			"  # Run one command in the node's root\n  oc debug node/worker-0 -- chroot /host ls /etc",
		DisableFlagsInUseLine: true,
		Run: func(cmd *cobra.Command, args []string) {
			cmdutil.CheckErr(o.complete(f, cmd, args))
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			err := o.run(ctx)
			stop()
			cmdutil.CheckErr(err)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.image, "image", o.image, "The image of the debug container.")
	fl.StringVar(&o.namespace, "to-namespace", "", "The namespace of the debug pod; the current one if empty.")
	fl.BoolVarP(&o.tty, "tty", "t", false, "Ask for a terminal even if a command is given.")
	fl.BoolVarP(&o.noTTY, "no-tty", "T", false, "Never ask for a terminal.")
	fl.BoolVarP(&o.quiet, "quiet", "q", false, "Print only what the command prints.")
	fl.BoolVar(&o.preserve, "preserve-pod", false, "Keep the debug pod.")
	return cmd
}

func (o *debugOptions) complete(f cmdutil.Factory, cmd *cobra.Command, args []string) error {
	targets := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		targets, o.command = args[:dash], args[dash:]
	}
	node, err := parseTarget(targets)
	if err != nil {
		return cmdutil.UsageErrorf(cmd, "%v", err)
	}
	o.node = node
	if o.tty && o.noTTY {
		return cmdutil.UsageErrorf(cmd, "--tty and --no-tty exclude each other")
	}
	if o.namespace == "" {
		if o.namespace, _, err = f.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	if o.config, err = f.ToRESTConfig(); err != nil {
		return err
	}
	if o.client, err = kubernetes.NewForConfig(o.config); err != nil {
		return err
	}
	o.exec = o.execInPod
	return nil
}

// parseTarget reads node/NAME, nodes/NAME, or the two words apart.
func parseTarget(args []string) (string, error) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	switch {
	case len(args) == 0:
		return "", errors.New("name what to debug: node/NAME")
	case len(args) != 2:
		return "", fmt.Errorf("only nodes can be debugged here, as node/NAME; for a pod use \"kubectl debug\" (got %q)", strings.Join(args, " "))
	}
	switch strings.ToLower(args[0]) {
	case "node", "nodes", "no":
	default:
		return "", fmt.Errorf("only nodes can be debugged here, as node/NAME; for a %s use \"kubectl debug\"", args[0])
	}
	if args[1] == "" || strings.Contains(args[1], "/") {
		return "", fmt.Errorf("%q is no node name", args[1])
	}
	return args[1], nil
}

// run returns the command's own exit code as an error that carries it.
func (o *debugOptions) run(ctx context.Context) (err error) {
	if _, err := o.client.CoreV1().Nodes().Get(ctx, o.node, metav1.GetOptions{}); err != nil {
		return err
	}
	pods := o.client.CoreV1().Pods(o.namespace)
	pod, err := pods.Create(ctx, o.pod(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	o.say("Starting pod/%s ...\n", pod.Name)
	o.say("To use host binaries, run `chroot /host`. Instead, if you need to access host namespaces, run `nsenter -a -t 1`.\n")
	defer func() {
		if removeErr := o.remove(ctx, pod); removeErr != nil && err == nil {
			err = removeErr
		}
	}()
	running, err := o.waitRunning(ctx, pod)
	if err != nil {
		return err
	}
	command, tty := o.command, o.tty
	if len(command) == 0 {
		command, tty = []string{"/bin/sh"}, !o.noTTY && term.TTY{In: o.streams.In}.IsTerminalIn()
		o.say("Pod IP: %s\n", running.Status.PodIP)
		o.say("If you don't see a command prompt, try pressing enter.\n")
	}
	err = o.exec(ctx, running, command, tty)
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return utilexec.CodeExitError{Err: errors.New("error: non-zero exit code from debug container"), Code: exit.ExitStatus()}
	}
	return err
}

func (o *debugOptions) say(format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(o.streams.ErrOut, format, args...)
	}
}

func (o *debugOptions) pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: strings.ReplaceAll(o.node, ".", "") + "-debug-",
			Namespace:    o.namespace,
			Annotations: map[string]string{
				"debug.openshift.io/source-container": debugContainer,
				"debug.openshift.io/source-resource":  "/v1, Resource=nodes/" + o.node,
			},
		},
		Spec: corev1.PodSpec{
			NodeName:                      o.node,
			RestartPolicy:                 corev1.RestartPolicyNever,
			HostNetwork:                   true,
			HostPID:                       true,
			HostIPC:                       true,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{{
				Name: "host",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
					Path: "/", Type: ptr.To(corev1.HostPathDirectory),
				}},
			}},
			Containers: []corev1.Container{{
				Name:  debugContainer,
				Image: o.image,
				// The container only waits: what the user wants is run by exec.
				Command:         []string{"sleep", "infinity"},
				Env:             []corev1.EnvVar{{Name: "HOST", Value: hostMount}},
				SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true), RunAsUser: ptr.To(int64(0))},
				VolumeMounts:    []corev1.VolumeMount{{Name: "host", MountPath: hostMount}},
			}},
		},
	}
}

func (o *debugOptions) waitRunning(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	pods := o.client.CoreV1().Pods(o.namespace)
	only := fields.OneTermEqualSelector("metadata.name", pod.Name).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = only
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = only
			return pods.Watch(ctx, opts)
		},
	}
	event, err := watchtools.UntilWithSync(ctx, cache.ToListWatcherWithWatchListSemantics(source, o.client), &corev1.Pod{}, nil, func(ev watch.Event) (bool, error) {
		p, ok := ev.Object.(*corev1.Pod)
		if !ok || ev.Type == watch.Deleted {
			return false, fmt.Errorf("debug pod %s was deleted while it started", pod.Name)
		}
		switch p.Status.Phase {
		case corev1.PodRunning:
			return true, nil
		case corev1.PodFailed, corev1.PodSucceeded:
			return false, fmt.Errorf("debug pod %s ended while it started: phase %s %s", p.Name, p.Status.Phase, p.Status.Message)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for debug pod %s to run on node %s: %w", pod.Name, o.node, err)
	}
	return event.Object.(*corev1.Pod), nil
}

// remove deletes the pod even after an interrupt, on a context of its own.
func (o *debugOptions) remove(ctx context.Context, pod *corev1.Pod) error {
	if o.preserve {
		return nil
	}
	o.say("\nRemoving debug pod ...\n")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	err := o.client.CoreV1().Pods(o.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	if err != nil {
		return fmt.Errorf("remove debug pod %s: %w", pod.Name, err)
	}
	return nil
}

func (o *debugOptions) execInPod(ctx context.Context, pod *corev1.Pod, command []string, tty bool) error {
	run := &exec.ExecOptions{
		StreamOptions: exec.StreamOptions{
			Namespace: pod.Namespace, PodName: pod.Name, ContainerName: debugContainer,
			Stdin: true, TTY: tty, Quiet: o.quiet, IOStreams: o.streams,
		},
		Command:   command,
		Executor:  interruptible{&exec.DefaultRemoteExecutor{}, ctx},
		PodClient: o.client.CoreV1(),
		Config:    o.config,
	}
	return run.Run()
}

// interruptible ends the remote command with ctx, so that an interrupt still
// removes the pod. ExecOptions has no context parameter to take it through.
type interruptible struct {
	*exec.DefaultRemoteExecutor
	ctx context.Context
}

func (e interruptible) Execute(u *url.URL, config *rest.Config, in io.Reader, out, errOut io.Writer, tty bool, size remotecommand.TerminalSizeQueue) error {
	return e.ExecuteWithContext(e.ctx, u, config, in, out, errOut, tty, size)
}
