package cli

import (
	"strings"
	"testing"
)

// Every failure that is left to a person says what that person does. Numbers are rows
// of the how-to's table.
func TestEveryReasonHasItsAdvice(t *testing.T) {
	for _, c := range []struct{ reason, word string }{
		{`unexpected on-disk state validating against x: could not stat file "/tmp/tmpfile": lstat /tmp/tmpfile: no such file or directory`, "delete the MachineConfig"},
		{`expected target osImageURL "a", have "b"; possible root cause: error: no space left`, "root cause"},
		{`bootstrap generated MC a and in-cluster generated MC b for this node do not match. Please check`, "first booted"},
		{`can't reconcile config a with b: configs a, b are not reconcilable: ignition disks section contains changes`, "take the item"},
		{`can't reconcile config a with b: detected change to FIPS flag; refusing to modify FIPS on a running cluster`, "FIPS is decided"},
		{`failed to create directory "/etc/a": mkdir /etc/a: not a directory`, "goes through a file"},
		{`open /usr/x: read-only file system`, "choose another"},
		{`failed to retrieve file ownership for file "/etc/a": failed to retrieve UserID for username: nobody-here`, "owner"},
		{`error enabling units: unit x is masked`, "[Install]"},
		{`could not apply update: restarting crio.service service failed. Error: exit status 1`, "mend the service"},
		{`could not apply update: reloading crio.service configuration failed. Error: exit status 1`, "mend the service"},
		{`NodeDisruptionPolicyStatus was not ready: generation 2`, "operator"},
		{`failed to drain node: n after 1 hour. Please see`, "PodDisruptionBudget"},
		{`failed to uncordon node: n after 10 minutes. Please see`, "machine-config-controller"},
		{`failed to update OS to registry.example.com/os after retries: timeout`, "reachable"},
		{`error running rpm-ostree update: error: No enabled repositories`, "repository"},
		{`extension package verification failed: usbguard`, "rpm-ostree status"},
		{`invalid extensions found: [nope]`, "spec.extensions"},
		{`64k-pages is only supported for aarch64 architecture`, "spec.kernelType"},
		{`reboot command failed, something is seriously wrong`, "reset-failed"},
		{`node n belongs to 2 custom roles, cannot proceed with this Node`, "all but one"},
		{`cannot stat /etc/kubernetes/kubeconfig: no such file`, "kubeconfig"},
		{`command "rpm -qf /etc/a" returned with unexpected error`, "rebuilddb"},
		{`failed to look up the user of the .ssh path /home/core/.ssh`, "chown"},
	} {
		a := adviceFor(c.reason)
		if a == nil || !strings.Contains(a.do, c.word) {
			t.Errorf("%s: got %+v, want advice with %q", c.reason, a, c.word)
		}
	}
	if a := adviceFor(`content mismatch for file "/etc/a"`); a != nil {
		t.Errorf("what recover mends by itself has advice: %+v", a)
	}
}
