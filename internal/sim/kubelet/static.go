package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// staticPodDir, below the machine's root, holds manifests of static pods.
const staticPodDir = "etc/kubernetes/manifests"

// staticPodEvery is how often the folder is looked at; a real kubelet's is 20 s.
const staticPodEvery = 5 * time.Second

// Annotations of a mirror pod.
const (
	annotationMirror = "kubernetes.io/config.mirror"
	annotationHash   = "kubernetes.io/config.hash"
	annotationSource = "kubernetes.io/config.source"
)

// staticLoop keeps a mirror pod for every manifest in the machine's folder. Unlike a
// real kubelet's, these pods run only while their mirror is there.
func (k *Kubelet) staticLoop(ctx context.Context) {
	tick := k.cfg.Clock.NewTicker(staticPodEvery)
	defer tick.Stop()
	for {
		if err := k.bounded(ctx, k.syncStatic); err != nil && ctx.Err() == nil {
			k.cfg.Log.Error(err, "Syncing static pods", "Node", k.cfg.NodeName)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

func (k *Kubelet) syncStatic(ctx context.Context) error {
	want, err := k.staticPods(ctx)
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	for key, pod := range want {
		obj, exists, _ := k.pods.GetStore().GetByKey(key)
		if exists && obj.(*corev1.Pod).Annotations[annotationHash] == pod.Annotations[annotationHash] {
			continue
		}
		if exists {
			errs = append(errs, k.removeMirror(ctx, obj.(*corev1.Pod)))
			continue // made again at the next look, once it has gone
		}
		if _, err := k.core.Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("create mirror pod %s: %w", key, err))
		}
	}
	for _, obj := range k.pods.GetStore().List() {
		pod := obj.(*corev1.Pod)
		if _, mirror := pod.Annotations[annotationMirror]; mirror && want[pod.Namespace+"/"+pod.Name] == nil && err == nil {
			errs = append(errs, k.removeMirror(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

func (k *Kubelet) removeMirror(ctx context.Context, pod *corev1.Pod) error {
	err := k.core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete mirror pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// staticPods reads the manifests. One that cannot be read is named and hides no
// other.
func (k *Kubelet) staticPods(ctx context.Context) (map[string]*corev1.Pod, error) {
	root, err := os.OpenRoot(k.cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), staticPodDir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read static pod path: %w", err)
	}
	node, err := k.core.Nodes().Get(ctx, k.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read own node: %w", err)
	}
	out := map[string]*corev1.Pod{}
	var errs []error
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			continue
		}
		raw, err := root.ReadFile(staticPodDir + "/" + e.Name())
		if err != nil {
			errs = append(errs, fmt.Errorf("read manifest: %w", err))
			continue
		}
		pod, err := mirror(raw, node)
		if err != nil {
			errs = append(errs, fmt.Errorf("manifest /%s/%s: %w", staticPodDir, e.Name(), err))
			continue
		}
		out[pod.Namespace+"/"+pod.Name] = pod
	}
	return out, errors.Join(errs...)
}

// mirror is the pod that shows a static pod to the cluster.
func mirror(raw []byte, node *corev1.Node) (*corev1.Pod, error) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(raw, &pod); err != nil {
		return nil, fmt.Errorf("read pod: %w", err)
	}
	if pod.Kind != "Pod" || pod.Name == "" || len(pod.Spec.Containers) == 0 {
		return nil, errors.New("want a Pod with a name and a container")
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	sum := sha256.Sum256(raw)
	hash := hex.EncodeToString(sum[:16])
	pod.Name += "-" + node.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotationMirror], pod.Annotations[annotationHash], pod.Annotations[annotationSource] = hash, hash, "file"
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true)}}
	pod.Spec.NodeName = node.Name
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	return &pod, nil
}

// staticAfterSync waits for the first list of pods: a mirror that is there already
// must be seen.
func (k *Kubelet) staticAfterSync(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), k.pods.HasSynced) {
		k.staticLoop(ctx)
	}
}
