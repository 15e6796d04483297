package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const proxyManifest = `apiVersion: v1
kind: Pod
metadata:
  name: proxy
  namespace: ` + testNS + `
spec:
  hostNetwork: true
  containers:
  - name: proxy
    image: registry.example.com/proxy:%s
`

// testStaticPods follows a manifest through its life: shown, made again when its
// mirror is deleted, replaced when it changes, gone with the file.
func testStaticPods(t *testing.T, c *cluster, root string) {
	file := filepath.Join(root, staticPodDir, "proxy.yaml")
	write := func(version string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, proxyManifest, version), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := "proxy-" + testNode
	write("1")
	first := c.untilMirror(t, name, ":1", "")
	if err := c.admin.CoreV1().Pods(testNS).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.untilMirror(t, name, ":1", first.UID)
	write("2")
	c.untilMirror(t, name, ":2", first.UID)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c.untilGone(t, name)
}

// untilMirror waits for a ready mirror pod with that image that is not the other.
func (c *cluster) untilMirror(t *testing.T, name, image string, other types.UID) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, "mirror pod "+name+" runs "+image, func() error {
		var err error
		p, err = c.admin.CoreV1().Pods(testNS).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return err
		}
		if err != nil {
			return err
		}
		if p.UID == other || !strings.HasSuffix(p.Spec.Containers[0].Image, image) || p.Status.Phase != corev1.PodRunning || p.Annotations[annotationMirror] == "" {
			return fmt.Errorf("it is %s, %s, %s", p.UID, p.Spec.Containers[0].Image, p.Status.Phase)
		}
		return nil
	})
	return p
}

func TestManifestThatIsNoPodIsNamed(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for _, raw := range []string{"", "{", "kind: Service", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}", "kind: Pod\nunknown: 1"} {
		if _, err := mirror([]byte(raw), node); err == nil {
			t.Errorf("%q was taken for a pod", raw)
		}
	}
}
