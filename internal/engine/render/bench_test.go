package render_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/engine/render"
)

// folder makes n MachineConfigs with the given number of files each; every
// tenth file is one that an earlier MachineConfig has, too.
func folder(n, files int) []render.Fragment {
	body := "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("net.core.somaxconn = 4096\n", 16)))
	out := make([]render.Fragment, n)
	for i := range out {
		var b strings.Builder
		b.WriteString(`{"ignition":{"version":"3.4.0"},"storage":{"files":[`)
		for j := range files {
			if j > 0 {
				b.WriteString(",")
			}
			owner := i
			if j%10 == 9 {
				owner = i / 2
			}
			fmt.Fprintf(&b, `{"path":"/etc/sysctl.d/%04d-%04d.conf","mode":420,"overwrite":true,"contents":{"source":%q}}`, owner, j, body)
		}
		fmt.Fprintf(&b, `]},"systemd":{"units":[{"name":"tune-%d.service","enabled":true,"contents":"[Unit]\nDescription=Tune %d\n\n[Service]\nExecStart=/usr/bin/true\n\n[Install]\nWantedBy=multi-user.target\n"}]}}`, i, i)
		out[i].Name = fmt.Sprintf("%02d-worker-%04d", i%100, i)
		out[i].Labels = map[string]string{render.RoleLabel: "worker"}
		out[i].Spec.KernelArguments = []string{fmt.Sprintf("tune.%d=1", i)}
		out[i].Spec.Config = runtime.RawExtension{Raw: []byte(b.String())}
	}
	return out
}

func BenchmarkRender(b *testing.B) {
	for _, size := range []struct{ configs, files int }{{10, 10}, {200, 10}, {2000, 10}, {5, 2000}} {
		b.Run(fmt.Sprintf("configs=%d/files=%d", size.configs, size.configs*size.files), func(b *testing.B) {
			in := folder(size.configs, size.files)
			bytes := 0
			for _, f := range in {
				bytes += len(f.Spec.Config.Raw)
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := render.Render(pool("worker"), in, render.Base{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHash(b *testing.B) {
	for _, mb := range []int{1, 10} {
		b.Run(fmt.Sprintf("MB=%d", mb), func(b *testing.B) {
			r, err := render.Render(pool("worker"), folder(1, mb*1500), render.Base{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(r.Spec.Config.Raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := render.Hash("worker", r.Spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
