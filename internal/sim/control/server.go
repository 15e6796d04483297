package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxBody bounds a request; the largest knob is a fault with its message.
const maxBody = 64 << 10

// Handler serves the knobs.
func Handler(k Knobs) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) { answer(w, k.Status(r.Context()), nil) })
	mux.HandleFunc("GET /v1/vms", func(w http.ResponseWriter, r *http.Request) {
		v, err := k.VMs(r.Context())
		answer(w, v, err)
	})
	mux.HandleFunc("POST /v1/vms/{name}/start", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, k.StartVM(r.Context(), r.PathValue("name")))
	})
	mux.HandleFunc("POST /v1/vms/{name}/stop", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, k.StopVM(r.Context(), r.PathValue("name")))
	})
	mux.HandleFunc("DELETE /v1/vms/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, k.DeleteVM(r.Context(), r.PathValue("name")))
	})
	mux.HandleFunc("GET /v1/vms/{name}/console", func(w http.ResponseWriter, r *http.Request) {
		b, err := k.Console(r.Context(), r.PathValue("name"))
		if err != nil {
			answer(w, nil, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(b)
	})
	mux.HandleFunc("GET /v1/quotas", func(w http.ResponseWriter, r *http.Request) {
		v, err := k.Quotas(r.Context())
		answer(w, v, err)
	})
	mux.HandleFunc("POST /v1/quotas", func(w http.ResponseWriter, r *http.Request) {
		accept(w, r, func(q Quota) error { return k.SetQuota(r.Context(), q) })
	})
	mux.HandleFunc("GET /v1/faults", func(w http.ResponseWriter, r *http.Request) {
		v, err := k.Faults(r.Context())
		answer(w, v, err)
	})
	mux.HandleFunc("POST /v1/faults", func(w http.ResponseWriter, r *http.Request) {
		accept(w, r, func(f Fault) error { return k.AddFault(r.Context(), f) })
	})
	mux.HandleFunc("DELETE /v1/faults", func(w http.ResponseWriter, r *http.Request) { answer(w, nil, k.ClearFaults(r.Context())) })
	mux.HandleFunc("POST /v1/slow", func(w http.ResponseWriter, r *http.Request) {
		accept(w, r, func(s Slow) error { return k.SetSlow(r.Context(), s) })
	})
	return mux
}

func accept[T any](w http.ResponseWriter, r *http.Request, do func(T) error) {
	var v T
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil {
		answer(w, nil, fmt.Errorf("read request: %w", err))
		return
	}
	answer(w, nil, do(v))
}

type failure struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		code := http.StatusBadRequest
		var missing *NotFoundError
		if errors.As(err, &missing) {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(failure{err.Error()})
		return
	}
	if v == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}
