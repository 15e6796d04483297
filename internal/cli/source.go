package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"
)

// inputs are the flags of the commands that read manifests and, some of them,
// a cluster beside them.
type inputs struct {
	files      []string
	from       string
	context    string
	kubeconfig string
}

func (in *inputs) addFiles(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.files, "filename", "f", nil, "file, directory or - with manifests; may be repeated")
}

func (in *inputs) addCluster(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.from, "from", "", "directory, must-gather or file that shows the cluster")
	cmd.Flags().StringVar(&in.context, "context", "", "kubeconfig context of the cluster")
	cmd.Flags().StringVar(&in.kubeconfig, "kubeconfig", "", "kubeconfig file; default: KUBECONFIG, else ~/.kube/config")
	_ = cmd.MarkFlagDirname("from")
	_ = cmd.RegisterFlagCompletionFunc("context", completeContext)
}

// completeContext offers the contexts of the kubeconfig.
func completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	cfg, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return sortedKeys(cfg.Contexts), cobra.ShellCompDirectiveNoFileComp
}

// manifests reads -f.
func (in *inputs) manifests(cmd *cobra.Command) ([]manifest, error) {
	if len(in.files) == 0 {
		return nil, &UsageError{fmt.Sprintf("%s: give the manifests with -f FILE, -f DIRECTORY or -f -", cmd.Name())}
	}
	stdins := 0
	for _, f := range append([]string{in.from}, in.files...) {
		if f == "-" {
			stdins++
		}
	}
	if stdins > 1 {
		return nil, &UsageError{fmt.Sprintf("%s: standard input can be read only once", cmd.Name())}
	}
	return readManifests(in.files, cmd.InOrStdin(), newProgress(cmd.ErrOrStderr()))
}

// live says whether the flags or the surroundings name a cluster.
func (in *inputs) live() bool {
	if in.from != "" {
		return false
	}
	if in.context != "" || in.kubeconfig != "" || os.Getenv("KUBECONFIG") != "" {
		return true
	}
	_, err := os.Stat(filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName))
	return err == nil
}

// cluster reads the cluster that --from or --context names. It returns an
// empty one, described as none, when neither does and implicit is false.
func (in *inputs) cluster(ctx context.Context, stdin io.Reader, p *progress, implicit bool) (*cluster, string, error) {
	c := newCluster()
	if in.from != "" && in.context+in.kubeconfig != "" {
		return nil, "", &UsageError{"give the cluster either with --from or with --context and --kubeconfig"}
	}
	switch {
	case in.from != "":
		r, problems, err := fileReader(in.from, stdin)
		if err != nil {
			return nil, "", fmt.Errorf("read %s: %w", in.from, err)
		}
		c.unread(problems)
		return c, filepath.Clean(in.from), c.load(ctx, r, p)
	case in.context != "" || in.kubeconfig != "" || implicit && in.live():
		r, host, err := liveReader(in.kubeconfig, in.context)
		if err != nil {
			return nil, "", err
		}
		if err := c.load(ctx, r, p); err != nil {
			return nil, "", fmt.Errorf("%w\n%s does not answer as a cluster should; to preview without it, use --from with a directory or a must-gather", err, host)
		}
		return c, host, nil
	}
	return c, "", nil
}

// unread keeps a few of a tree's unreadable files: a must-gather has many.
func (c *cluster) unread(problems []string) {
	const few = 3
	for i, p := range problems {
		if i == few {
			c.notes = append(c.notes, fmt.Sprintf("%d more files of the tree hold no object", len(problems)-few))
			return
		}
		c.notes = append(c.notes, "not read: "+p)
	}
}
