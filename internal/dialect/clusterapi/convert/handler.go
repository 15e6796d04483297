package convert

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// maxReview bounds a request: the API server sends lists in one review.
const maxReview = 512 << 20

// ServeHTTP answers a ConversionReview of apiextensions.k8s.io/v1. What cannot
// be converted fails the whole review, with the reason; what is no review is
// answered with 400.
func (c *Converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		http.Error(w, "read conversion review: "+err.Error(), http.StatusBadRequest)
		return
	}
	out, err := c.review(raw)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out)
}

func (c *Converter) review(raw []byte) ([]byte, error) {
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(raw, &review); err != nil {
		return nil, fmt.Errorf("decode conversion review: %w", err)
	}
	req := review.Request
	if req == nil {
		return nil, errors.New("decode conversion review: no request in it")
	}
	res := &apiextensionsv1.ConversionResponse{UID: req.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for i := range req.Objects {
		converted, err := c.raw(req.Objects[i].Raw, req.DesiredAPIVersion)
		if err != nil {
			res.ConvertedObjects = nil
			res.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		res.ConvertedObjects = append(res.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	review.Request, review.Response = nil, res
	out, err := json.Marshal(&review)
	if err != nil {
		return nil, fmt.Errorf("encode conversion review: %w", err)
	}
	return out, nil
}

func (c *Converter) raw(raw []byte, apiVersion string) ([]byte, error) {
	var obj map[string]any
	if err := json.Unmarshal(raw, &obj); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	out, err := c.Convert(obj, apiVersion)
	if err != nil {
		return nil, err
	}
	converted, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode object: %w", err)
	}
	return converted, nil
}
