package world

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The group that unqualified names shall mean, and a version of it that holds
// nothing.
const (
	PrecedenceGroup   = "machine.openshift.io"
	PrecedenceVersion = "v1alpha1"
)

// Precedence wraps a listener with the certificate the API server trusts.
func Precedence(l net.Listener, certPEM, keyPEM []byte) (net.Listener, error) {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load certificate of the precedence API: %w", err)
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}), nil
}

// PrecedenceHandler answers discovery and openapi of an API without kinds.
func PrecedenceHandler() http.Handler {
	gv := metav1.GroupVersionForDiscovery{GroupVersion: PrecedenceGroup + "/" + PrecedenceVersion, Version: PrecedenceVersion}
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: PrecedenceGroup,
		Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv,
	}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group}}
	resources := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.GroupVersion, APIResources: []metav1.APIResource{}}
	aggregated := apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items: []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: PrecedenceGroup},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: PrecedenceVersion, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}}}},
	}
	openapi := map[string]any{"openapi": "3.0.0", "info": map[string]string{"title": PrecedenceGroup, "version": PrecedenceVersion}, "paths": map[string]any{}}
	swagger := map[string]any{"swagger": "2.0", "info": openapi["info"], "paths": map[string]any{}, "definitions": map[string]any{}}
	path := "/apis/" + gv.GroupVersion
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") {
			send(w, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", aggregated)
			return
		}
		send(w, "application/json", groups)
	})
	mux.HandleFunc("GET /apis/"+PrecedenceGroup, func(w http.ResponseWriter, _ *http.Request) { send(w, "application/json", group) })
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { send(w, "application/json", resources) })
	mux.HandleFunc("GET /openapi/v2", func(w http.ResponseWriter, _ *http.Request) { send(w, "application/json", swagger) })
	mux.HandleFunc("GET /openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		send(w, "application/json", map[string]any{"paths": map[string]any{strings.TrimPrefix(path, "/"): map[string]string{"serverRelativeURL": "/openapi/v3" + path + "?hash=0"}}})
	})
	mux.HandleFunc("GET /openapi/v3"+path, func(w http.ResponseWriter, _ *http.Request) { send(w, "application/json", openapi) })
	for _, p := range []string{"/healthz", "/readyz", "/livez"} {
		mux.HandleFunc("GET "+p, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	return mux
}

func send(w http.ResponseWriter, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	_ = json.NewEncoder(w).Encode(v)
}
