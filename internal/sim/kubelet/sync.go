package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

// sandboxRetry is how soon a pod without an address is looked at again.
const sandboxRetry = 300 * time.Millisecond

// sync moves one pod a step. No two syncs of one pod run at a time.
func (k *Kubelet) sync(ctx context.Context, key string) error {
	obj, exists, err := k.pods.GetStore().GetByKey(key)
	if err != nil {
		return fmt.Errorf("look up pod: %w", err)
	}
	k.mu.Lock()
	r, stopping := k.runs[key], k.stopping
	k.mu.Unlock()
	if stopping {
		return nil
	}
	if !exists {
		if r != nil {
			k.teardown(r)
		}
		return nil
	}
	pod := obj.(*corev1.Pod)
	if r != nil && r.uid != pod.UID { // replaced under its name
		k.teardown(r)
		r = nil
	}
	if r == nil {
		if terminal(pod.Status.Phase) && pod.DeletionTimestamp == nil {
			return nil
		}
		if r, err = k.adopt(ctx, pod); err != nil {
			return err
		}
		k.mu.Lock()
		k.runs[key] = r
		k.mu.Unlock()
	}
	r.mu.Lock()
	pod = newest(pod, r.patched)
	r.pod = pod
	done := r.deleted
	r.mu.Unlock()
	if done {
		return nil
	}
	return k.advance(ctx, r, pod)
}

// advance does what Step says until nothing more is to be done at once, then
// reports.
func (k *Kubelet) advance(ctx context.Context, r *podRun, pod *corev1.Pod) error {
	var sandboxErr error
	if !r.sandbox().Ready && pod.DeletionTimestamp == nil {
		var ready bool
		if ready, sandboxErr = k.prepare(r, pod); sandboxErr == nil && !ready {
			k.queue.AddAfter(r.key, sandboxRetry)
		}
		if ready && hostRoot(pod) {
			sandboxErr = linkHost(k.cfg.Root)
		}
	}
	var out Outcome
	for range 3 { // start or stop, see the effect, no more: what fails waits for its time
		out = Step(pod, r.sandbox(), k.cfg.Clock.Now())
		again := false
		if out.Stop {
			again = k.stopAll(r, pod, out.KillAt)
		}
		if len(out.Start) > 0 {
			callCtx, cancel := context.WithTimeout(ctx, callTimeout)
			k.startContainers(callCtx, r, pod, out.Start)
			cancel()
			again = true
		}
		if !again {
			break
		}
	}
	if out.Wake > 0 {
		k.queue.AddAfter(r.key, out.Wake)
	}
	return firstError(sandboxErr, k.reportPod(ctx, r, pod, out))
}

func (k *Kubelet) reportPod(ctx context.Context, r *podRun, pod *corev1.Pod, out Outcome) error {
	return k.bounded(ctx, func(ctx context.Context) error {
		patched, gone, err := reportPod(ctx, k.core, pod, out)
		r.mu.Lock()
		defer r.mu.Unlock()
		if patched != nil {
			r.patched = patched
		}
		r.deleted = r.deleted || gone
		return err
	})
}

// reportPod writes the status if it changed, and removes the object when its
// Outcome says so. A nil Pod means nothing was written.
func reportPod(ctx context.Context, core coreclient.CoreV1Interface, pod *corev1.Pod, out Outcome) (patched *corev1.Pod, gone bool, err error) {
	if !equality.Semantic.DeepEqual(pod.Status, out.Status) {
		after := pod.DeepCopy()
		after.Status = out.Status
		patch, err := statusPatch(pod, after, pod.Status, after.Status, corev1.Pod{})
		if err != nil {
			return nil, false, fmt.Errorf("compute status patch: %w", err)
		}
		patched, err = core.Pods(pod.Namespace).Patch(ctx, pod.Name, "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && out.Delete {
			return nil, true, nil // another pod has the name by now, or none
		}
		if err != nil {
			return nil, false, fmt.Errorf("report status: %w", err)
		}
	}
	if !out.Delete {
		return patched, false, nil
	}
	err = core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return patched, false, fmt.Errorf("delete ended pod: %w", err)
	}
	return patched, true, nil
}

// newest is the later of the watched object and our own last write.
func newest(seen, written *corev1.Pod) *corev1.Pod {
	if written == nil || written.UID != seen.UID {
		return seen
	}
	if c, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, written.ResourceVersion); err == nil && c < 0 {
		return written
	}
	return seen
}

// linkHost makes /host inside the machine's root mean the root itself, so
// that `chroot /host` works in a debug pod without any mount.
func linkHost(root string) error {
	path := filepath.Join(root, "host")
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := os.Symlink(".", path); err != nil && !os.IsExist(err) {
		return fmt.Errorf("link /host: %w", err)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
