package operator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func faceNamed(name string) Face {
	for _, c := range []string{ControllerMachineAPI, ControllerCloudController} {
		for _, f := range Faces(c) {
			if f.Name == name {
				return f
			}
		}
	}
	return Face{}
}

// deploymentWith has want replicas, of which ready are available since start.
func deploymentWith(want, ready int32) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-api-controllers"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(want)}}
	d.Status = appsv1.DeploymentStatus{UpdatedReplicas: want, AvailableReplicas: ready, Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, LastTransitionTime: metav1.NewTime(start)}}}
	return d
}

func lines(s configv1.ClusterOperatorStatus) []string {
	var out []string
	for _, c := range s.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status)+" "+c.Reason+" "+c.Message)
	}
	return out
}

func TestFaceTellsTheStateOfItsWorkloads(t *testing.T) {
	f := faceNamed("machine-api")
	well, _ := f.decide(observed{version: "4.20.0", now: start, deployments: []appsv1.Deployment{deploymentWith(1, 1)}})
	for _, row := range []struct {
		name, why string
		in        observed
		want      []string
		wake      time.Duration
	}{
		{"first look", "nothing was ever well", observed{version: "4.20.0", now: start}, []string{
			"Available=False Initializing Operator is initializing", "Progressing=True Initializing Operator is initializing",
			"Degraded=False AsExpected ", "Upgradeable=True AsExpected "}, 0},
		{"well", "", observed{version: "4.20.0", now: start, deployments: []appsv1.Deployment{deploymentWith(1, 1)}}, []string{
			"Available=True AsExpected Cluster Machine API Operator is available at operator: 4.20.0", "Progressing=False AsExpected ",
			"Degraded=False AsExpected ", "Upgradeable=True AsExpected "}, 0},
		{"scaled to zero", "an administrator did it", observed{version: "4.20.0", now: start, current: well, deployments: []appsv1.Deployment{deploymentWith(0, 0)}}, []string{
			"Available=True AsExpected Cluster Machine API Operator is available at operator: 4.20.0", "Progressing=False AsExpected ",
			"Degraded=False AsExpected ", "Upgradeable=True AsExpected "}, 0},
		{"short for a minute", "a replaced pod is no failure", observed{version: "4.20.0", now: start.Add(time.Minute), current: well, deployments: []appsv1.Deployment{deploymentWith(1, 0)}}, []string{
			"Available=True AsExpected Cluster Machine API Operator is available at operator: 4.20.0",
			"Progressing=True SyncingResources Progressing towards operator: 4.20.0; waiting for deployment machine-api-controllers has 0 of 1 replicas available",
			"Degraded=False AsExpected ", "Upgradeable=True AsExpected "}, 2 * time.Minute},
		{"short for long", "", observed{version: "4.20.0", now: start.Add(time.Hour), current: well, deployments: []appsv1.Deployment{deploymentWith(1, 0)}}, []string{
			"Available=True AsExpected Cluster Machine API Operator is available at operator: 4.20.0", "Progressing=False AsExpected ",
			"Degraded=True SyncingFailed Failed to resync for operator: 4.20.0 because deployment machine-api-controllers has 0 of 1 replicas available", "Upgradeable=True AsExpected "}, 0},
		{"short in an upgrade", "", observed{version: "4.21.0", now: start.Add(time.Hour), current: well, deployments: []appsv1.Deployment{deploymentWith(1, 0)}}, []string{
			"Available=True AsExpected Cluster Machine API Operator is available at operator: 4.20.0", "Progressing=False AsExpected ",
			"Degraded=True SyncingFailed Failed when progressing towards operator: 4.21.0 because deployment machine-api-controllers has 0 of 1 replicas available", "Upgradeable=True AsExpected "}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, wake := f.decide(row.in)
			if diff := cmp.Diff(row.want, lines(got)); diff != "" {
				t.Errorf("%s: conditions (-want +got):\n%s", row.why, diff)
			}
			if wake != row.wake {
				t.Errorf("got wake %s, want %s", wake, row.wake)
			}
			again, _ := f.decide(observed{version: row.in.version, now: row.in.now.Add(time.Second), current: got, deployments: row.in.deployments})
			if row.name != "first look" && !cmp.Equal(got, again) {
				t.Errorf("deciding again changes the status:\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func TestFaceWaitsForItsDaemonSet(t *testing.T) {
	f := faceNamed("cloud-controller-manager")
	d := deploymentWith(2, 2)
	d.Name = "azure-cloud-controller-manager"
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "azure-cloud-node-manager"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 6, UpdatedNumberScheduled: 6, NumberAvailable: 5, NumberUnavailable: 1}}
	in := observed{version: "4.20.0", now: start, deployments: []appsv1.Deployment{d}, daemonSets: []appsv1.DaemonSet{ds}}
	if short := f.shortfalls(in); len(short) != 1 || short[0].text != "daemonset azure-cloud-node-manager has 5 of 6 pods available" {
		t.Errorf("got %v, want the daemon set's", short)
	}
}
