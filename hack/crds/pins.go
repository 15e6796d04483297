//go:build pins

// This file keeps the modules whose CRD files are read in go.mod; no program is
// built with it.
package main

import (
	_ "github.com/openshift/api/machine/v1"
	_ "sigs.k8s.io/cluster-api/util/certs"
)
