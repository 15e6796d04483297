package render_test

import (
	"fmt"
	"testing"

	v3_5 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// The generators draw from few names, so that configs meet.

func maybe[T any](t *rapid.T, label string, values ...T) *T {
	i := rapid.IntRange(-1, len(values)-1).Draw(t, label)
	if i < 0 {
		return nil
	}
	v := values[i]
	return &v
}

// some draws a subset of names in any order.
func some[T ~string](t *rapid.T, label string, names ...T) []T {
	n := rapid.IntRange(0, len(names)).Draw(t, label)
	return rapid.Permutation(names).Draw(t, label+" order")[:n]
}

func drawResource(t *rapid.T, remote bool) types.Resource {
	r := types.Resource{
		Compression: maybe(t, "compression", "", "gzip"),
		Source:      maybe(t, "source", "data:,a", "data:,b", ""),
	}
	if remote && rapid.IntRange(0, 3).Draw(t, "remote") == 0 {
		source := "https://example.com/" + rapid.SampledFrom([]string{"x", "y"}).Draw(t, "url")
		r.Source = &source
		for _, n := range some(t, "headers", "A", "B") {
			r.HTTPHeaders = append(r.HTTPHeaders, types.HTTPHeader{Name: n, Value: maybe(t, "value", "1", "2")})
		}
	}
	return r
}

func drawNode(t *rapid.T, path string) types.Node {
	return types.Node{
		Path:      path,
		Overwrite: maybe(t, "overwrite", false, false),
		User:      types.NodeUser{ID: maybe(t, "uid", 0, 7)},
		Group:     types.NodeGroup{Name: maybe(t, "group", "wheel", "")},
	}
}

func drawStorage(t *rapid.T, s *types.Storage) {
	for _, p := range some(t, "nodes", "/a", "/b", "/c", "/d", "/e") {
		node := drawNode(t, p)
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			s.Directories = append(s.Directories, types.Directory{Node: node, DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: maybe(t, "mode", 0o755)}})
		case 1:
			target := "/t"
			s.Links = append(s.Links, types.Link{Node: node, LinkEmbedded1: types.LinkEmbedded1{Hard: maybe(t, "hard", false), Target: &target}})
		default:
			f := types.File{Node: node, FileEmbedded1: types.FileEmbedded1{Contents: drawResource(t, true), Mode: maybe(t, "mode", 0o644, 0o600)}}
			for range rapid.IntRange(0, 2).Draw(t, "appends") {
				f.Append = append(f.Append, drawResource(t, false))
			}
			s.Files = append(s.Files, f)
		}
	}
	for _, d := range some(t, "disks", "/dev/x", "/dev/y") {
		disk := types.Disk{Device: d, WipeTable: maybe(t, "wipe", true, false)}
		for _, l := range some(t, "partitions", "one", "two") {
			disk.Partitions = append(disk.Partitions, types.Partition{Label: &l, TypeGUID: maybe(t, "guid", ""), Resize: maybe(t, "resize", false)})
		}
		s.Disks = append(s.Disks, disk)
	}
	for _, d := range some(t, "filesystems", "/dev/f", "/dev/g") {
		format := "xfs"
		s.Filesystems = append(s.Filesystems, types.Filesystem{
			Device: d, Format: &format, Path: maybe(t, "path", "/var", "/srv"),
			MountOptions: some[types.MountOption](t, "mountOptions", "ro", "rw"), Options: some[types.FilesystemOption](t, "options", "-f"),
		})
	}
	for _, n := range some(t, "raid", "r0", "r1") {
		level := "raid1"
		s.Raid = append(s.Raid, types.Raid{Name: n, Level: &level, Devices: []types.Device{"/dev/" + types.Device(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "device"))}, Options: some[types.RaidOption](t, "options", "-x"), Spares: maybe(t, "spares", 1)})
	}
	for _, n := range some(t, "luks", "l0", "l1") {
		device := rapid.SampledFrom([]string{"/dev/l", "/dev/m"}).Draw(t, "device")
		l := types.Luks{Name: n, Device: &device, OpenOptions: some[types.OpenOption](t, "open", "-a", "-b"), Options: some[types.LuksOption](t, "options", "-c"), KeyFile: drawResource(t, false)}
		for _, u := range some(t, "tang", "http://t1", "http://t2") {
			thumb := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "thumbprint")
			l.Clevis.Tang = append(l.Clevis.Tang, types.Tang{URL: u, Thumbprint: &thumb, Advertisement: maybe(t, "adv", "{}")})
		}
		l.Clevis.Tpm2 = maybe(t, "tpm2", true, false)
		s.Luks = append(s.Luks, l)
	}
}

func drawConfig(t *rapid.T) ignition.Config {
	var c ignition.Config
	c.Ignition.Version = ignition.InternalVersion
	rare := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
	if rare("ignition section") {
		c.Ignition.Config.Replace = drawResource(t, true)
		for _, s := range some(t, "merge", "data:,m", "data:,n") {
			c.Ignition.Config.Merge = append(c.Ignition.Config.Merge, types.Resource{Source: &s, Compression: maybe(t, "compression", "")})
			c.Ignition.Security.TLS.CertificateAuthorities = append(c.Ignition.Security.TLS.CertificateAuthorities, types.Resource{Source: &s})
		}
		c.Ignition.Proxy = types.Proxy{HTTPSProxy: maybe(t, "proxy", "https://p", "https://q"), NoProxy: some[types.NoProxyItem](t, "noProxy", "x", "y", "z")}
		c.Ignition.Timeouts.HTTPTotal = maybe(t, "timeout", 1, 2)
	}
	for _, k := range some(t, "kargs", "k1", "k2", "k3") {
		if rapid.Bool().Draw(t, "exist") {
			c.KernelArguments.ShouldExist = append(c.KernelArguments.ShouldExist, types.KernelArgument(k))
		} else {
			c.KernelArguments.ShouldNotExist = append(c.KernelArguments.ShouldNotExist, types.KernelArgument(k))
		}
	}
	for _, n := range some(t, "users", "core", "admin") {
		c.Passwd.Users = append(c.Passwd.Users, types.PasswdUser{
			Name: n, SSHAuthorizedKeys: some[types.SSHAuthorizedKey](t, "keys", "ssh-rsa A a", "ssh-rsa B b", "ssh-rsa C"),
			Groups: some[types.Group](t, "groups", "g", "h"), UID: maybe(t, "uid", 1000), PasswordHash: maybe(t, "hash", "x", "y"), ShouldExist: maybe(t, "exist", true, false),
		})
	}
	for _, n := range some(t, "groups", "g", "h") {
		c.Passwd.Groups = append(c.Passwd.Groups, types.PasswdGroup{Name: n, Gid: maybe(t, "gid", 5, 6), System: maybe(t, "system", true)})
	}
	drawStorage(t, &c.Storage)
	for _, n := range some(t, "units", "a.service", "b.service", "c.timer") {
		u := types.Unit{Name: n, Contents: maybe(t, "contents", "", "[Unit]\nA=1\n", "[Unit]\nA=2\n"), Enabled: maybe(t, "enabled", true, false), Mask: maybe(t, "mask", true)}
		for _, d := range some(t, "dropins", "10.conf", "20.conf") {
			u.Dropins = append(u.Dropins, types.Dropin{Name: d, Contents: maybe(t, "contents", "[Unit]\nB=1\n", "")})
		}
		c.Systemd.Units = append(c.Systemd.Units, u)
	}
	return c
}

// drawFragments draws valid fragments of the roles worker and infra, some of
// them without a config.
func drawFragments(t *rapid.T) []render.Fragment {
	n := rapid.IntRange(1, 6).Draw(t, "fragments")
	out := make([]render.Fragment, n)
	for i := range out {
		role := rapid.SampledFrom([]string{"worker", "infra"}).Draw(t, "role")
		out[i].Name = fmt.Sprintf("%02d-%s", rapid.IntRange(0, 9).Draw(t, "number")*10+i, role)
		out[i].Labels = map[string]string{render.RoleLabel: role}
		out[i].Spec.KernelArguments = some[string](t, "kargs", "x", "y")
		out[i].Spec.FIPS = rapid.IntRange(0, 5).Draw(t, "fips") == 0
		if rapid.IntRange(0, 6).Draw(t, "no config") == 0 {
			continue
		}
		raw := ignition.Marshal(drawConfig(t))
		if _, rpt, err := v3_5.Parse(raw); err != nil {
			t.Skipf("not valid: %v %v", err, rpt)
		}
		out[i].Spec.Config = runtime.RawExtension{Raw: raw}
	}
	return out
}

// officialMerge does what the original does with the official library.
func officialMerge(t *rapid.T, ordered []render.Fragment) []byte {
	merged := ignition.Config{Ignition: types.Ignition{Version: ignition.InternalVersion}}
	for i, f := range ordered {
		if f.Spec.Config.Raw == nil {
			continue
		}
		cfg, _, err := v3_5.Parse(f.Spec.Config.Raw)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			merged = cfg
			continue
		}
		empty := ""
		for j := range cfg.Storage.Files {
			if cfg.Storage.Files[j].Contents.Compression == nil {
				cfg.Storage.Files[j].Contents.Compression = &empty
			}
		}
		merged = v3_5.Merge(merged, cfg)
		for j := range merged.Storage.Files {
			if c := merged.Storage.Files[j].Contents.Compression; c != nil && *c == "" {
				merged.Storage.Files[j].Contents.Compression = nil
			}
		}
	}
	yes := true
	for i := range merged.Storage.Files {
		if merged.Storage.Files[i].Overwrite == nil {
			merged.Storage.Files[i].Overwrite = &yes
		}
	}
	return ignition.Marshal(merged)
}

func agreesWithLibrary(t *rapid.T) {
	in := drawFragments(t)
	got, err := render.RenderSelected("infra", in, render.Base{})
	if err != nil {
		t.Fatal(err)
	}
	ordered, err := render.Order(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got.Spec.Config.Raw), string(officialMerge(t, ordered))); diff != "" {
		t.Fatalf("got (-), official library (+):\n%s", diff)
	}
}

// TestCleanIsNeverWrong: what the quick check passes, the official check passes.
func TestCleanIsNeverWrong(t *testing.T) {
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		// A merged config may break rules that its parts kept.
		more := drawConfig(t)
		merged := v3_5.Merge(cfg, more)
		if !ignition.Clean(&merged) {
			return
		}
		passed++
		if rpt := validate.ValidateWithContext(merged, nil); rpt.IsFatal() {
			t.Fatalf("clean, but the official check says %v", rpt)
		}
	})
	if passed == 0 {
		t.Error("no drawn config was clean")
	}
}

func TestMergeAgreesWithLibrary(t *testing.T) { rapid.Check(t, agreesWithLibrary) }

func FuzzMergeAgreesWithLibrary(f *testing.F) {
	// The bytes are the choices of the generators.
	for seed := range uint32(8) {
		choices := make([]byte, 1<<15)
		for i := range choices {
			seed = seed*1664525 + 1013904223
			choices[i] = byte(seed >> 24)
		}
		f.Add(choices)
	}
	f.Fuzz(rapid.MakeFuzz(agreesWithLibrary))
}

// TestRenderIgnoresTheOrderOfItsInput also shows that equal content keeps the
// name: the second render reads what the first one's input was written as.
func TestRenderIgnoresTheOrderOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawFragments(t)
		want, err := render.RenderSelected("infra", in, render.Base{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := render.RenderSelected("infra", rapid.Permutation(in).Draw(t, "order"), render.Base{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("got (-) want (+):\n%s", diff)
		}
	})
}

func TestRenderKeepsItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawFragments(t)
		before := fmt.Sprintf("%+v", in)
		if _, err := render.RenderSelected("infra", in, render.Base{}); err != nil {
			t.Fatal(err)
		}
		if after := fmt.Sprintf("%+v", in); after != before {
			t.Errorf("the input changed: got %s, want %s", after, before)
		}
	})
}
