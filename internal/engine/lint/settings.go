package lint

import (
	"errors"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/hostconf"
)

// Kubelet is a KubeletConfig.
type Kubelet struct {
	*machineconfigv1.KubeletConfig
	Source Source
}

// Runtime is a ContainerRuntimeConfig.
type Runtime struct {
	*machineconfigv1.ContainerRuntimeConfig
	Source Source
}

// RuleOfSetting is the rule that refuses a kind of object which MachineConfigs
// are made of, whatever is wrong with it.
func RuleOfSetting(kind string) string {
	switch kind {
	case "KubeletConfig":
		return RuleKubeletConfig
	case "ContainerRuntimeConfig":
		return RuleRuntimeConfig
	}
	return RuleRender
}

// settings judges what MachineConfigs are made of by its own controllers'
// checks.
func (l *linter) settings() {
	for _, k := range l.in.Kubelets {
		l.setting(object{"KubeletConfig/" + k.Name, k.Annotations, k.Source}, RuleKubeletConfig, hostconf.CheckKubelet(k.KubeletConfig, "", false))
	}
	for _, r := range l.in.Runtimes {
		l.setting(object{"ContainerRuntimeConfig/" + r.Name, r.Annotations, r.Source}, RuleRuntimeConfig, hostconf.CheckRuntime(r.ContainerRuntimeConfig))
	}
}

func (l *linter) setting(o object, rule string, err error) {
	if err == nil {
		return
	}
	f := Finding{Rule: rule, Why: err.Error()}
	var r *hostconf.Refusal
	if errors.As(err, &r) && r.Field != "" {
		f.Field = "spec." + r.Field
	}
	l.add(o, f)
}
