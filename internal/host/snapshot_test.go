package host

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMachineSurvivesAsData(t *testing.T) {
	m := NewMemory(MemoryOptions{Image: "image-1", Arguments: []string{"quiet"}})
	f := m.Files()
	for _, err := range []error{
		f.Replace("/etc/a", []byte("a"), Attr{Mode: 0o600, UID: 1, GID: 2}),
		f.Replace("/etc/empty", nil, Attr{Mode: 0o644}),
		f.Link("/etc/a", "/etc/deep/link"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m.sys.stage().image = "image-2"
	blobs := map[string][]byte{}
	raw, err := m.Save(func(digest string, body []byte) error { blobs[digest] = body; return nil })
	if err != nil {
		t.Fatal(err)
	}
	back, err := RestoreMemory(raw, MemoryOptions{}, func(digest string) ([]byte, error) { return blobs[digest], nil })
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.Tree(), back.Tree()); d != "" {
		t.Errorf("(-saved +restored):\n%s", d)
	}
	if d := cmp.Diff(back.Tree(), back.Boot(true, nil).Tree()); d != "" {
		t.Errorf("a power cut after the restart lost something:\n%s", d)
	}
	lost := errors.New("lost")
	if _, err := RestoreMemory(raw, MemoryOptions{}, func(string) ([]byte, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("lost contents gave %v", err)
	}
}

// FuzzRestoreMemory asserts that no bytes make a machine that its own root does not
// hold, nor a panic.
func FuzzRestoreMemory(f *testing.F) {
	for _, s := range []string{"", "{}", `{"files":[{"path":"/../x","mode":420}]}`, `{"files":[{"path":"/a","mode":2147484141},{"path":"/a/b","mode":420,"digest":"x"}],"boots":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := RestoreMemory(raw, MemoryOptions{}, func(string) ([]byte, error) { return nil, nil })
		if err == nil {
			_ = m.Tree()
		}
	})
}
