//go:build tools

// Package tools keeps the programs that hack/install builds among the requirements of this module.
package tools

import (
	_ "github.com/vmware-tanzu/velero/cmd/velero"
	_ "github.com/vmware-tanzu/velero/cmd/velero-restore-helper"
)
