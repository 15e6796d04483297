package ostree

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// reported is a deployment as rpm-ostree status --json has it.
type reported struct {
	ID                     string   `json:"id"`
	OSName                 string   `json:"osname"`
	Serial                 int      `json:"serial"`
	Checksum               string   `json:"checksum"`
	Version                string   `json:"version"`
	Timestamp              int64    `json:"timestamp"`
	ContainerImage         string   `json:"container-image-reference,omitempty"`
	ContainerDigest        string   `json:"container-image-reference-digest,omitempty"`
	Origin                 string   `json:"origin,omitempty"`
	Booted                 bool     `json:"booted"`
	Staged                 bool     `json:"staged"`
	Pinned                 bool     `json:"pinned"`
	Unlocked               string   `json:"unlocked"`
	Packages               []string `json:"packages"`
	RequestedPackages      []string `json:"requested-packages"`
	RequestedLocalPackages []string `json:"requested-local-packages"`
	RequestedBaseRemovals  []string `json:"requested-base-removals"`
	BaseLocalReplacements  []string `json:"base-local-replacements"`
	Modules                []string `json:"modules"`
	RegenerateInitramfs    bool     `json:"regenerate-initramfs"`
}

func (s *State) report() []reported {
	out := []reported{}
	for _, d := range s.list() {
		r := reported{
			ID: fmt.Sprintf("%s-%s.%d", osName, d.Checksum(), d.Serial), OSName: osName, Serial: d.Serial, Checksum: d.Checksum(),
			Version: d.Version, Timestamp: d.Timestamp, ContainerImage: d.Origin, Booted: d == s.Booted, Staged: d == s.Staged,
			Unlocked: "none", Packages: full(d.Packages), RequestedPackages: full(d.Packages), RequestedBaseRemovals: full(d.Removals),
			RequestedLocalPackages: []string{}, BaseLocalReplacements: []string{}, Modules: []string{},
		}
		if _, digest, ok := strings.Cut(d.Image, "@"); ok {
			r.ContainerDigest = digest
		}
		out = append(out, r)
	}
	return out
}

// full is a list that is written as [] when it is empty.
func full(list []string) []string { return append([]string{}, list...) }

func (t *Tree) status(args []string, out io.Writer) error {
	list, _, err := flags(args)
	if err != nil {
		return err
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	all, asJSON := s.report(), false
	for _, f := range list {
		switch f.name {
		case "--json":
			asJSON = true
		case "-b", "--booted":
			all = slices.DeleteFunc(all, func(r reported) bool { return !r.Booted })
		case "-v", "--verbose":
		default:
			return usageError{fmt.Sprintf("Unknown option %s", f.name)}
		}
	}
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"deployments": all, "transaction": nil, "cached-update": nil, "update-driver": nil})
	}
	print(out, all)
	return nil
}

// print writes deployments for people.
func print(out io.Writer, all []reported) {
	fmt.Fprint(out, "State: idle\nDeployments:\n")
	for _, r := range all {
		mark := " "
		if r.Booted {
			mark = "*"
		}
		fmt.Fprintf(out, "%s %s\n", mark, r.ContainerImage)
		if r.ContainerDigest != "" {
			fmt.Fprintf(out, "                   Digest: %s\n", r.ContainerDigest)
		}
		fmt.Fprintf(out, "                  Version: %s\n", r.Version)
		if len(r.RequestedBaseRemovals) > 0 {
			fmt.Fprintf(out, "      RemovedBasePackages: %s\n", strings.Join(r.RequestedBaseRemovals, " "))
		}
		if len(r.RequestedPackages) > 0 {
			fmt.Fprintf(out, "          LayeredPackages: %s\n", strings.Join(r.RequestedPackages, " "))
		}
	}
}

// bootEntry is a deployment as bootc status --json has it.
func (s *State) bootEntry(d *Deployment) map[string]any {
	if d == nil {
		return nil
	}
	e := map[string]any{
		"image": nil, "cachedUpdate": nil, "incompatible": len(d.Packages)+len(d.Removals) > 0, "pinned": false,
		"ostree": map[string]any{"checksum": d.Checksum(), "deploySerial": d.Serial},
	}
	if d.Image != "" {
		_, digest, _ := strings.Cut(d.Image, "@")
		e["image"] = map[string]any{
			"image":   map[string]any{"image": d.Image, "transport": "registry"},
			"version": d.Version, "timestamp": nil, "imageDigest": digest,
		}
	}
	return e
}

// RunBootc does what bootc does with these arguments and returns its exit code.
func (t *Tree) RunBootc(args []string, out, errOut io.Writer) int {
	if err := t.bootc(args, out); err != nil {
		fmt.Fprintf(errOut, "error: %v\n", err)
		return 1
	}
	return 0
}

func (t *Tree) bootc(args []string, out io.Writer) error {
	if len(args) == 0 {
		return usageError{"bootc needs a command"}
	}
	if t.Failing("bootc " + args[0]) {
		return fmt.Errorf("%s was made to fail by /%s", args[0], FailingPath)
	}
	switch args[0] {
	case "status":
		s, err := t.Load()
		if err != nil {
			return err
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		next := s.Next()
		return enc.Encode(map[string]any{
			"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "metadata": map[string]any{"name": "host"},
			"spec": map[string]any{"image": map[string]any{"image": next.Image, "transport": "registry"}, "bootOrder": "default"},
			"status": map[string]any{
				"booted": s.bootEntry(s.Booted), "staged": s.bootEntry(s.Staged), "rollback": s.bootEntry(s.Rollback),
				"rollbackQueued": false, "type": "bootcHost",
			},
		})
	case "switch":
		_, words, err := flags(args[1:], "--transport")
		if err != nil {
			return err
		}
		if len(words) != 1 {
			return usageError{"switch needs one image"}
		}
		err = t.stage(func(d *Deployment) error {
			d.Image, d.Origin, d.Version = words[0], unverified+words[0], VersionOf(words[0])
			return nil
		})
		if err == nil {
			fmt.Fprintf(out, "Queued for next boot: %s\n", words[0])
		}
		return err
	}
	return usageError{fmt.Sprintf("unrecognized subcommand '%s'", args[0])}
}
