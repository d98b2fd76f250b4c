//go:build tools

// Package tools keeps the programs that hack/install builds among the requirements of this module.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
