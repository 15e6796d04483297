package csr

import (
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Pending requests count while they are this young; a clock may be behind.
const (
	pendingSpan = time.Hour
	pendingSkew = 10 * time.Second
)

// Queued says whether a request is one that Decide judges: of a kubelet
// signer, and asked for by the identity that uses that signer. Answers do not
// matter.
func Queued(o *certificatesv1.CertificateSigningRequest) bool {
	return queued(o.Spec.SignerName, o.Spec.Username, o.Spec.Groups)
}

func queued(signer, username string, groups []string) bool {
	switch signer {
	case certificatesv1.KubeletServingSignerName:
		return slices.Contains(groups, nodeGroup)
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return username == Bootstrapper
	}
	return false
}

// IsRecent says whether a request made at created still counts as pending.
func IsRecent(created, now time.Time) bool {
	return created.After(now.Add(-pendingSpan)) && created.Before(now.Add(pendingSkew))
}
