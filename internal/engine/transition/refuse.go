package transition

import (
	"fmt"
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/render"
)

// extensions that hosts of the enterprise family know.
var extensions = []string{"ipsec", "kerberos", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "usbguard"}

// refuse collects everything in the desired config that this host cannot have.
func (p *planner) refuse(w *way) {
	for _, it := range slices.Concat(w.wanted.files, w.wanted.units) {
		if !w.due(it) {
			continue
		}
		if reason := p.refusedItem(it); reason != "" {
			p.refused = append(p.refused, Refusal{it.kind, it.key, reason})
		}
	}
	for _, it := range w.wanted.enables {
		if !w.due(it) || it.want.Value != "enabled" {
			continue
		}
		if p.now[it.Ref].Value == "masked" && !p.unmasked(it, w) {
			p.refused = append(p.refused, Refusal{it.kind, it.key,
				fmt.Sprintf("error enabling units: unit %s is masked; set mask: false in the unit, or do not enable it", it.key)})
		}
	}
	p.refuseSystem()
}

// unmasked tells that the config itself takes the mask away.
func (p *planner) unmasked(it item, w *way) bool {
	return slices.ContainsFunc(w.wanted.units, func(u item) bool {
		return u.kind == render.KindUnit && u.unit == it.unit && u.want.Type != Link
	})
}

func (p *planner) refusedItem(it item) string {
	f := &p.in.Facts
	if it.broken != "" {
		return it.broken
	}
	if it.want.Type == Absent {
		return ""
	}
	for _, dir := range f.ReadOnly {
		if it.Key == dir || strings.HasPrefix(it.Key, dir+"/") {
			return fmt.Sprintf("cannot write %q: %s is read-only on this host (%s); use a path that can be written, such as one below /etc or /var", it.Key, dir, f.ID)
		}
	}
	if p.now[it.Ref].Type == Dir {
		return fmt.Sprintf("cannot write file %q: a directory is there; remove the directory or use another path", it.Key)
	}
	if user, _, ok := strings.Cut(it.want.Owner, ":"); ok {
		if _, known := lookup(user, func(u User) int { return u.UID }, f); !known {
			return fmt.Sprintf("failed to retrieve file ownership for file %q: failed to retrieve UserID for username: %s", it.Key, user)
		}
	}
	return ""
}

func (p *planner) refuseSystem() {
	cur, des, f := &p.in.Current, &p.in.Desired, &p.in.Facts
	add := func(kind, key, format string, args ...any) {
		p.refused = append(p.refused, Refusal{kind, key, fmt.Sprintf(format, args...)})
	}
	if cur.OSImageURL != des.OSImageURL && des.OSImageURL != "" && f.Image == NoBackend {
		add(render.KindOSImage, "", "updating the OS on non-CoreOS nodes is not supported: this host (%s) has neither rpm-ostree nor bootc", f.ID)
	}
	if f.Kernel == NoBackend && !slices.Equal(diff.Arguments(cur.KernelArguments), diff.Arguments(des.KernelArguments)) {
		add(render.KindKernelArgument, "", "cannot change kernel arguments: this host (%s) has none of rpm-ostree, bootc, grubby, boot loader entries and /etc/default/grub", f.ID)
	}
	kernel := kernelType(des.KernelType)
	switch {
	case kernel == "64k-pages" && f.Arch != "arm64":
		add(render.KindKernelType, kernel, "64k-pages is only supported for aarch64 architecture")
	case kernel != "default" && !f.EnterpriseLinux && kernelType(cur.KernelType) != kernel:
		add(render.KindKernelType, kernel, "kernel type %s is not available on this host (%s): only RHCOS and SCOS have it", kernel, f.ID)
	}
	if !f.EnterpriseLinux {
		if added := missing(des.Extensions, cur.Extensions); len(added) > 0 {
			add(render.KindExtension, added[0], "extensions %v are not available on this host (%s): only RHCOS and SCOS have them", added, f.ID)
		}
		return
	}
	if unknown := missing(des.Extensions, extensions); len(unknown) > 0 {
		add(render.KindExtension, unknown[0], "invalid extensions found: %v", unknown)
	}
}
