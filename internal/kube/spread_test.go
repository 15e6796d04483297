package kube

import (
	"testing"
	"time"
)

func TestSpreadStaysWithinTenPercent(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 200 {
		d := spread(time.Hour)
		seen[d] = true
		if d < 54*time.Minute || d > 66*time.Minute {
			t.Fatalf("an hour became %v", d)
		}
	}
	if len(seen) < 100 {
		t.Errorf("200 waits have only %d lengths", len(seen))
	}
}
