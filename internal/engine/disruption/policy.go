package disruption

import (
	"fmt"
	"slices"
	"strings"

	operatorv1 "github.com/openshift/api/operator/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/render"
)

const (
	crio         = "crio.service"
	registries   = "/etc/containers/registries.conf"
	trustService = "coreos-update-ca-trust.service"
	iriService   = "iri-registry.service"
)

// Rule says what a change of one file, one directory's files or one unit needs.
type Rule struct {
	Match   string // path or unit name
	Actions []Action
	User    bool // the cluster's admin set it
}

// Policy is the whole set of rules.
type Policy struct {
	Files  []Rule
	Units  []Rule
	SSHKey Rule // Match is empty
}

// Defaults is the policy of a cluster whose admin has set none.
func Defaults() Policy {
	file := func(path string, actions ...Action) Rule { return Rule{Match: path, Actions: actions} }
	none, daemonReload := Action{Kind: None}, Action{Kind: DaemonReload}
	reloadCrio := Action{Kind: Reload, Service: crio}
	restart := func(s string) Action { return Action{Kind: Restart, Service: s} }
	return Policy{
		Files: []Rule{
			file("/var/lib/kubelet/config.json", none),
			file("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reloadCrio),
			file("/etc/containers/policy.json", reloadCrio),
			file(registries, Action{Kind: Reload, Service: crio, special: true}),
			file("/etc/containers/registries.d", reloadCrio),
			file("/etc/crio/policies", reloadCrio),
			file("/etc/nmstate/openshift", none),
			file("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", restart(trustService), restart(crio)),
			file("/etc/kubernetes/credential-providers", restart("kubelet.service")),
			file("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", daemonReload, restart("kubelet.service")),
			file("/etc/iri-registry", restart(iriService)),
			file("/usr/local/bin/load-registry-image.sh", restart(iriService)),
			file("/etc/pki/ca-trust/source/anchors/iri-root-ca.crt", restart(trustService)),
		},
		Units:  []Rule{{Match: iriService, Actions: []Action{daemonReload, restart(iriService)}}},
		SSHKey: Rule{Actions: []Action{none}},
	}
}

// Merge lays an admin's rules over the defaults: one for the same path or unit
// replaces the default in its place, others follow, and the one for ssh keys
// counts if it has an action. Problems name rules that the API would refuse;
// such a rule still counts, with what is wrong in it left out.
func Merge(spec operatorv1.NodeDisruptionPolicyConfig) (Policy, []string) {
	p := Defaults()
	var problems []string
	read := func(where string, actions []operatorv1.NodeDisruptionPolicySpecAction) []Action {
		out, bad := specActions(actions)
		for _, b := range bad {
			problems = append(problems, where+": "+b)
		}
		return out
	}
	for i, f := range spec.Files {
		where := fmt.Sprintf("spec.nodeDisruptionPolicy.files[%d]", i)
		if !strings.HasPrefix(f.Path, "/") {
			problems = append(problems, fmt.Sprintf("%s.path: %q: start the path with /", where, f.Path))
		}
		p.Files = put(p.Files, Rule{Match: f.Path, Actions: read(where, f.Actions), User: true})
	}
	for i, u := range spec.Units {
		where := fmt.Sprintf("spec.nodeDisruptionPolicy.units[%d]", i)
		p.Units = put(p.Units, Rule{Match: string(u.Name), Actions: read(where, u.Actions), User: true})
	}
	if len(spec.SSHKey.Actions) > 0 {
		p.SSHKey = Rule{Actions: read("spec.nodeDisruptionPolicy.sshkey", spec.SSHKey.Actions), User: true}
	}
	return p, problems
}

func put(rules []Rule, r Rule) []Rule {
	if i := slices.IndexFunc(rules, func(x Rule) bool { return x.Match == r.Match }); i >= 0 {
		rules[i] = r
		return rules
	}
	return append(rules, r)
}

func specActions(in []operatorv1.NodeDisruptionPolicySpecAction) (out []Action, problems []string) {
	if len(in) == 0 {
		problems = append(problems, "no actions; give at least one, None if nothing is to be done")
	}
	for _, a := range in {
		act, err := action(string(a.Type), a.Reload, a.Restart)
		if err != nil || act.special {
			problems = append(problems, fmt.Sprintf("action %q: want None, DaemonReload, Reload or Restart with serviceName, Drain or Reboot", a.Type))
			continue
		}
		if len(in) > 1 && (act.Kind == None || act.Kind == Reboot) {
			problems = append(problems, fmt.Sprintf("action %s must stand alone", a.Type))
		}
		out = append(out, act)
	}
	if len(out) == 0 {
		// A rule that says nothing cannot promise that less than a reboot is enough.
		out = []Action{{Kind: Reboot}}
	}
	return out, problems
}

func action(kind string, reload *operatorv1.ReloadService, restart *operatorv1.RestartService) (Action, error) {
	switch {
	case kind == "None":
		return Action{Kind: None}, nil
	case kind == "DaemonReload":
		return Action{Kind: DaemonReload}, nil
	case kind == "Reload" && reload != nil && reload.ServiceName != "":
		return Action{Kind: Reload, Service: string(reload.ServiceName)}, nil
	case kind == "Restart" && restart != nil && restart.ServiceName != "":
		return Action{Kind: Restart, Service: string(restart.ServiceName)}, nil
	case kind == "Drain":
		return Action{Kind: Drain}, nil
	case kind == "Reboot":
		return Action{Kind: Reboot}, nil
	case kind == "Special":
		return Action{Kind: Reload, Service: crio, special: true}, nil
	}
	return Action{}, fmt.Errorf("action %q is not known or lacks its service", kind)
}

// FromStatus reads the merged policy that MachineConfiguration/cluster reports,
// which is what an agent obeys. What cannot be read asks for a reboot.
func FromStatus(status operatorv1.NodeDisruptionPolicyClusterStatus) Policy {
	read := func(in []operatorv1.NodeDisruptionPolicyStatusAction) []Action {
		var out []Action
		for _, a := range in {
			act, err := action(string(a.Type), a.Reload, a.Restart)
			if err != nil {
				act = Action{Kind: Reboot}
			}
			out = append(out, act)
		}
		if len(out) == 0 {
			out = []Action{{Kind: Reboot}}
		}
		return out
	}
	var p Policy
	for _, f := range status.Files {
		p.Files = append(p.Files, Rule{Match: f.Path, Actions: read(f.Actions)})
	}
	for _, u := range status.Units {
		p.Units = append(p.Units, Rule{Match: string(u.Name), Actions: read(u.Actions)})
	}
	p.SSHKey = Rule{Actions: read(status.SSHKey.Actions)}
	return p
}

// Status writes a policy as MachineConfiguration/cluster reports it.
func (p Policy) Status() operatorv1.NodeDisruptionPolicyClusterStatus {
	var s operatorv1.NodeDisruptionPolicyClusterStatus
	for _, r := range p.Files {
		s.Files = append(s.Files, operatorv1.NodeDisruptionPolicyStatusFile{Path: r.Match, Actions: statusActions(r.Actions)})
	}
	for _, r := range p.Units {
		s.Units = append(s.Units, operatorv1.NodeDisruptionPolicyStatusUnit{
			Name: operatorv1.NodeDisruptionPolicyServiceName(r.Match), Actions: statusActions(r.Actions)})
	}
	s.SSHKey.Actions = statusActions(p.SSHKey.Actions)
	return s
}

var statusTypes = map[Kind]operatorv1.NodeDisruptionPolicyStatusActionType{
	None: operatorv1.NoneStatusAction, DaemonReload: operatorv1.DaemonReloadStatusAction,
	Reload: operatorv1.ReloadStatusAction, Restart: operatorv1.RestartStatusAction,
	Drain: operatorv1.DrainStatusAction, Reboot: operatorv1.RebootStatusAction,
}

func statusActions(in []Action) []operatorv1.NodeDisruptionPolicyStatusAction {
	var out []operatorv1.NodeDisruptionPolicyStatusAction
	for _, a := range in {
		s := operatorv1.NodeDisruptionPolicyStatusAction{Type: statusTypes[a.Kind]}
		name := operatorv1.NodeDisruptionPolicyServiceName(a.Service)
		switch {
		case a.special:
			s.Type = operatorv1.SpecialStatusAction
		case a.Kind == Reload:
			s.Reload = &operatorv1.ReloadService{ServiceName: name}
		case a.Kind == Restart:
			s.Restart = &operatorv1.RestartService{ServiceName: name}
		}
		out = append(out, s)
	}
	return out
}

// judge returns the rule for one change and what it asks for.
func (p Policy) judge(c *diff.Change) (string, []Action) {
	if c.Inert {
		return "a running node does not apply it", []Action{{Kind: None}}
	}
	switch c.Kind {
	case render.KindFile:
		r, ok := closest(p.Files, c.Key)
		if !ok {
			return "no node disruption policy covers the file", []Action{{Kind: Reboot}}
		}
		return r.name("file policy " + r.Match), resolve(r.Actions, c)
	case render.KindUnit, render.KindDropin:
		i := slices.IndexFunc(p.Units, func(r Rule) bool { return r.Match == c.Unit() })
		if i < 0 {
			return "no node disruption policy covers the unit", []Action{{Kind: Reboot}}
		}
		return p.Units[i].name("unit policy " + p.Units[i].Match), resolve(p.Units[i].Actions, c)
	case render.KindUser, render.KindSSHKey, diff.KindPasswordHash:
		return p.SSHKey.name("ssh key policy"), resolve(p.SSHKey.Actions, c)
	case render.KindKernelArgument:
		return "kernel arguments change only with a reboot", []Action{{Kind: Reboot}}
	case render.KindOSImage, render.KindKernelType, render.KindExtension, render.KindFIPS:
		return "the operating system changes only with a reboot", []Action{{Kind: Reboot}}
	}
	return "nothing less than a reboot is known to be enough", []Action{{Kind: Reboot}}
}

func (r Rule) name(what string) string {
	if r.User {
		return what + " (set by the admin)"
	}
	return what + " (default)"
}

// closest returns the rule for a path or its nearest ancestor directory.
func closest(rules []Rule, path string) (Rule, bool) {
	best, found := Rule{}, false
	for _, r := range rules {
		dir := strings.TrimSuffix(r.Match, "/")
		fits := path == r.Match || path == dir || strings.HasPrefix(path, dir+"/")
		if fits && (!found || len(r.Match) > len(best.Match)) {
			best, found = r, true
		}
	}
	return best, found
}

// resolve turns the special action into plain ones.
func resolve(actions []Action, c *diff.Change) []Action {
	out := make([]Action, 0, len(actions)+1)
	for _, a := range actions {
		if a.special {
			a.special = false
			if !safeRegistries(c.Before, c.After) {
				out = append(out, Action{Kind: Drain})
			}
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		out = append(out, Action{Kind: Reboot})
	}
	return out
}
