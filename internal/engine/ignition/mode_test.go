package ignition_test

import (
	"testing"

	"millwright.io/millwright/internal/engine/ignition"
)

// TestTheSameTextIsTheSameMode: permissions are octal in every dialect.
func TestTheSameTextIsTheSameMode(t *testing.T) {
	for _, c := range []struct {
		text    string
		want    int
		warning string
	}{
		{"0644", 0o644, ""},
		{"0o644", 0o644, ""},
		{"644", 0o644, "the leading zero is missing; write 0644, since a reader that takes it for decimal sets 01204"},
		{"0", 0, ""},
		{"4755", 0o4755, "the leading zero is missing; write 04755, since a reader that takes it for decimal sets 011223"},
	} {
		got, warning, err := ignition.ParseMode(c.text)
		if err != nil || got != c.want {
			t.Errorf("%s: got %o (%v), want %o", c.text, got, err, c.want)
		}
		if (warning != nil) != (c.warning != "") || warning != nil && warning.Detail != c.warning {
			t.Errorf("%s: got warning %v, want %q", c.text, warning, c.warning)
		}
	}
	for _, bad := range []string{"", "0888", "rw-r--r--", "10000", "-1", "0x1f"} {
		if got, _, err := ignition.ParseMode(bad); err == nil {
			t.Errorf("%q: got %o, want an error", bad, got)
		}
	}
}

func TestLikelyModeFindsTheOctalMeant(t *testing.T) {
	for given, want := range map[int]int{644: 420, 755: 493, 600: 384, 777: 511} {
		if got, ok := ignition.LikelyMode(given); !ok || got != want {
			t.Errorf("%d: got %d %v, want %d", given, got, ok, want)
		}
	}
	for _, given := range []int{420, 493, 0, 8, 888, -1} {
		got, ok := ignition.LikelyMode(given)
		if given == 420 {
			// 420 itself has octal digits; whether it was meant is for the caller,
			// who only asks about modes that look wrong.
			if !ok || got != 0o420 {
				t.Errorf("420: got %o %v", got, ok)
			}
			continue
		}
		if ok {
			t.Errorf("%d: got %d, want no guess", given, got)
		}
	}
}
