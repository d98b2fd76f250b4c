//go:build tools

// Package tools keeps the programs that hack/install builds among the requirements of this module.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
