package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/cloud"
)

const good = `{"vmTemplateName":"k8s","ipHostPoolRef":{"name":"pool"},"location":{"type":"folder","name":"f"},"vmConfig":{"dvSwitchName":"dvs","portGroupName":"pg",
"dcsMachineCpuSpec":{"quantity":8},"dcsMachineMemorySpec":{"quantity":16384},"dcsMachineDiskSpec":[{"quantity":0,"systemVolume":true,"datastoreClusterName":"d"},
{"quantity":100,"datastoreName":"x","path":"/var/lib/kubelet","format":"xfs"}]}}`

func decode(t *testing.T, raw string) *Spec {
	t.Helper()
	s, _, err := Codec{}.Decode([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.(*Spec)
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		want           []string
	}{
		{"as documented", "", "", nil},
		{"no template", `"vmTemplateName":"k8s",`, "", []string{"spec.vmTemplateName"}},
		{"provider id in a template", `"vmTemplateName"`, `"providerID":"dcs://x","vmTemplateName"`, []string{"spec.providerID"}},
		{"no pool", `{"name":"pool"}`, `{}`, []string{"spec.ipHostPoolRef.name"}},
		{"location type", `"folder"`, `"host"`, []string{"spec.location.type"}},
		{"location twice", `"name":"f"`, `"name":"f","urn":"u"`, []string{"spec.location"}},
		{"no cpus", `{"quantity":8}`, `{}`, []string{"spec.vmConfig.dcsMachineCpuSpec.quantity"}},
		{"port group without switch", `"dvSwitchName":"dvs",`, "", []string{"spec.vmConfig.dvSwitchName"}},
		{"data disk without size", `"quantity":100,`, "", []string{"spec.vmConfig.dcsMachineDiskSpec[1].quantity"}},
		{"two stores", `"datastoreName":"x"`, `"datastoreName":"x","datastoreClusterName":"y"`, []string{"spec.vmConfig.dcsMachineDiskSpec[1]"}},
		{"two system disks", `"quantity":100,`, `"quantity":100,"systemVolume":true,`, []string{"spec.vmConfig.dcsMachineDiskSpec"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := good
			if c.old != "" {
				raw = strings.Replace(good, c.old, c.new, 1)
			}
			var got []string
			for _, p := range (Codec{}).Validate(decode(t, raw), cloud.SpecContext{}) {
				got = append(got, p.Field)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("fields (-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeUnknown(t *testing.T) {
	_, got, err := Codec{}.Decode([]byte(strings.Replace(good, "portGroupName", "portgroupname", 1)))
	if err != nil || len(got) != 1 || !strings.Contains(got[0].Detail, `"portGroupName"`) || got[0].Warning {
		t.Errorf("got %v, %v, want one refusal that suggests portGroupName", got, err)
	}
	_, got, err = Codec{}.Decode([]byte(`{"colour": "red"}`))
	if err != nil || len(got) != 1 || got[0].Field != "spec.colour" || !got[0].Warning {
		t.Errorf("a foreign field: got %v, %v, want one warning", got, err)
	}
	if _, _, err := (Codec{}).Decode([]byte(`[]`)); err == nil {
		t.Error("a list: got no error")
	}
}

func TestDigestAndNumbers(t *testing.T) {
	a, b := decode(t, good), decode(t, good)
	b.ProviderID, b.VMURN, b.Slot.IP = "dcs://x", "urn", "10.0.0.1"
	if (Codec{}).Digest(a) != (Codec{}).Digest(b) {
		t.Error("the digest changed with what became of the machine")
	}
	b.VMConfig.CPU.Quantity++
	if (Codec{}).Digest(a) == (Codec{}).Digest(b) {
		t.Error("the digest did not change with the vCPUs")
	}
	if got := a.Sequence(0); got != 3 {
		t.Errorf("slot 0 after one data disk: got sequence %d, want 3", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"vmConfig":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, _, err := Codec{}.Decode(raw)
		if err != nil {
			return
		}
		Codec{}.Validate(s, cloud.SpecContext{})
		enc, err := Codec{}.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Codec{}.Decode(enc)
		if err != nil || (Codec{}).Digest(again) != (Codec{}).Digest(s) {
			t.Errorf("%q does not survive a round trip: %v", raw, err)
		}
	})
}
