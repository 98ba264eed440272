//go:build !race

package main

import (
	"encoding/json"
	"net/http"
	"strings"

	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

// controlHandler answers what package localcluster asks and the Kubernetes API has no answer for.
type controlHandler struct {
	token string
	etcd  *etcdServer
	crds  crdlisters.CustomResourceDefinitionLister // what the server itself goes by
}

func (h *controlHandler) inFrontOf(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isCRD := strings.CutPrefix(r.URL.Path, control.CRDPath)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+h.token:
			next.ServeHTTP(w, r)
		case r.Method == http.MethodPost && r.URL.Path == control.CompactPath:
			if err := h.etcd.compact(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		case r.Method == http.MethodGet && isCRD:
			h.serveCRD(w, name)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (h *controlHandler) serveCRD(w http.ResponseWriter, name string) {
	crd, err := h.crds.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(crd) // the client is gone
}
