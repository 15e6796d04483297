package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/ignition"
)

// Extensions are the allowed extensions and the packages each installs.
var extensions = map[string][]string{
	"two-node-ha":          {"pacemaker", "pcs", "fence-agents-all"},
	"ipsec":                {"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"},
	"usbguard":             {"usbguard"},
	"kerberos":             {"krb5-workstation", "libkadm5"},
	"kernel-devel":         {"kernel-devel", "kernel-headers"},
	"sandboxed-containers": {"kata-containers"},
	"sysstat":              {"sysstat"},
}

// ExtensionPackages returns the packages an extension installs; none if it is
// not allowed.
func ExtensionPackages(extension string) []string { return slices.Clone(extensions[extension]) }

// Validate returns everything that is wrong with one MachineConfig: kernel
// type, config, file modes, extensions, and what of spec 2 cannot be
// translated. Render stops at the first of these, in this order; an extension
// it would let pass, since there is no config beside it, is a warning here.
func Validate(f Fragment) []Problem {
	var out []Problem
	collect := func(err error) {
		var e *Error
		if errors.As(err, &e) {
			out = append(out, e.Problems...)
		}
	}
	collect(checkKernelType(f))
	source, err := readConfig(f)
	collect(err)
	if source != nil {
		collect(checkModes(f, source))
	}
	before := len(out)
	collect(checkExtensions(f))
	for i := before; i < len(out) && f.Spec.Config.Raw == nil; i++ {
		out[i].Warning = true
	}
	if source != nil {
		if _, err := source.Config(); err != nil {
			collect(ignitionFault(f, err))
		}
	}
	return out
}

// check validates a fragment as the original does and returns its config, nil
// if it has none.
func check(f Fragment) (*ignition.Source, error) {
	if err := checkKernelType(f); err != nil {
		return nil, err
	}
	source, err := readConfig(f)
	if err != nil || source == nil {
		return nil, err
	}
	if err := checkModes(f, source); err != nil {
		return nil, err
	}
	return source, checkExtensions(f)
}

func checkKernelType(f Fragment) error {
	switch f.Spec.KernelType {
	case "", kernelTypeDefault, kernelTypeRealtime, kernelType64kPages:
		return nil
	}
	return guilty(f, fmt.Sprintf("kernelType=%s is invalid", f.Spec.KernelType), Problem{
		Path: "kernelType", Value: f.Spec.KernelType, Detail: "want default, realtime or 64k-pages",
	})
}

func readConfig(f Fragment) (*ignition.Source, error) {
	if f.Spec.Config.Raw == nil {
		return nil, nil
	}
	source, err := ignition.ReadMachineConfig(f.Spec.Config.Raw)
	if err != nil {
		return nil, ignitionFault(f, err)
	}
	return &source, nil
}

func checkModes(f Fragment, source *ignition.Source) error {
	bad := source.ModeProblems()
	if len(bad) == 0 {
		return nil
	}
	return guilty(f, bad[0].Detail, inConfig(bad)...)
}

func checkExtensions(f Fragment) error {
	var unknown []string
	var problems []Problem
	for i, name := range f.Spec.Extensions {
		if _, ok := extensions[name]; !ok {
			unknown = append(unknown, name)
			problems = append(problems, Problem{
				Path: fmt.Sprintf("extensions.%d", i), Value: name,
				Detail: "no such extension; want one of " + strings.Join(extensionNames(), ", "),
			})
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return guilty(f, fmt.Sprintf("invalid extensions found: %v", unknown), problems...)
}

func extensionNames() []string {
	names := make([]string, 0, len(extensions))
	for name := range extensions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// guilty is a refusal in the original's words that names the fragment.
func guilty(f Fragment, wire string, problems ...Problem) *Error {
	for i := range problems {
		problems[i].Fragment = f.Name
	}
	return &Error{Wire: wire, Problems: problems}
}

func ignitionFault(f Fragment, err error) *Error {
	var e *ignition.Error
	if !errors.As(err, &e) {
		return guilty(f, err.Error(), Problem{Path: "config", Detail: err.Error()})
	}
	return guilty(f, e.Wire, inConfig(e.Problems)...)
}

// inConfig moves the paths of a config below spec.
func inConfig(in []ignition.Problem) []Problem {
	out := make([]Problem, len(in))
	for i, p := range in {
		path := "config"
		if p.Path != "" {
			path += "." + p.Path
		}
		out[i] = Problem{Path: path, Value: p.Value, Detail: p.Detail, Warning: p.Warning}
	}
	return out
}
