package dcs

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/sim/vrm"
)

func TestImage(t *testing.T) {
	for _, n := range []int{0, 1, sector, 3*sector + 7} {
		data := bytes.Repeat([]byte("x"), n)
		img := image(data)
		if !bytes.Equal(img, image(data)) || len(img)%sector != 0 {
			t.Errorf("%d bytes: the image is not the same twice, or ends within a sector", n)
		}
		if got := vrm.ReadDisc(img, "ignition", "config.ign"); !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got back %d", n, len(got))
		}
		if label := strings.TrimSpace(string(img[16*sector+40 : 16*sector+72])); label != "ignition" {
			t.Errorf("label %q, want ignition", label)
		}
	}
	if to := os.Getenv("DCS_IMAGE_OUT"); to != "" { // to look at with other tools
		if err := os.WriteFile(to, image([]byte("hello")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzReadMark(f *testing.F) {
	f.Add(mark{"w", "u", "o", "10.0.0.1", "h", stageNew}.String())
	f.Add("somebody's own VM, owner=me")
	f.Fuzz(func(t *testing.T, text string) {
		m := readMark(text)
		if again := readMark(m.String()); m.name != "" && again != m {
			t.Errorf("%q: got %+v, again %+v", text, m, again)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, "10000002", "x")
	f.Add(503, "", "")
	f.Fuzz(func(t *testing.T, status int, code, text string) {
		if got := classify("op", status, code, text); got.Kind == "" || got.Op == "" || got.Message == "" {
			t.Errorf("got %+v", got)
		}
	})
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, text string
		want       cloud.Kind
		busy       bool
	}{
		{200, "10000002", "", cloud.Credentials, false}, {401, "", "", cloud.Credentials, false}, {200, "10100116", "", cloud.Credentials, false},
		{200, "10000022", "", cloud.Invalid, false}, {200, "10000040", "", cloud.Denied, false}, {403, "1", "", cloud.Denied, false},
		{200, "102212808", "", cloud.Transient, true}, {500, "10300057", "", cloud.Transient, true}, {200, "10420004", "", cloud.NotFound, false},
		{404, "1", "", cloud.NotFound, false}, {429, "", "", cloud.Throttled, false}, {400, "1", "bad", cloud.Invalid, false},
		{500, "1", "Host resources are insufficient", cloud.NoCapacity, false}, {200, "1", "exceeds the upper limit", cloud.Quota, false}, {503, "", "", cloud.Transient, false},
	} {
		got := classify("op", c.status, c.code, c.text)
		if got.Kind != c.want || busy(got) != c.busy {
			t.Errorf("%d %q %q: got %s, busy %v, want %s, %v", c.status, c.code, c.text, got.Kind, busy(got), c.want, c.busy)
		}
	}
}
