# The entry points. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CACHE := $(or $(PLIMSOLL_CACHE),$(HOME)/.cache/plimsoll)
export PATH := $(CACHE)/bin:$(HOME)/.cargo/bin:$(PATH)
CARGO := cargo
TESTKIT := hack/run bin testkit

.PHONY: help
help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | while IFS=$$'\t' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: tools-base ## back up, lose everything, restore, with the server killed in the middle, on the embedded cluster
	hack/build build --workspace --bin plimsoll --example crds
	$$(hack/target-directory)/debug/plimsoll demo

.PHONY: check
check: tools-base tools-check ## formatting, lints, documentation, spelling, scripts, dependencies, generated files
	hack/check

.PHONY: test
test: ## install what the tests need, then run every test
	hack/run-tests all

.PHONY: test-fast
test-fast: ## the tests that need neither the real cluster nor the peers
	hack/run-tests fast

.PHONY: test-full
test-full: ## every test, and on the real cluster every kill point instead of a sample
	hack/run-tests full

.PHONY: soak
soak: tools-all ## prune a repository in a loop while restic and our own engine back up into it, for ten minutes
	PLIMSOLL_SOAK_SECONDS=600 hack/cargo test -p plimsoll-repository --test it -- --nocapture prune_concurrency::

.PHONY: bench
bench: tools-all ## measure, beside the peers where there is one, and print ratios
	hack/run-benches

.PHONY: bench-repository
bench-repository: tools-all ## restic, kopia and our engine take turns: a directory, S3 with 50 ms, a million files
	hack/run-benches repository

.PHONY: fuzz
fuzz: ## feed the readers of foreign bytes with generated input, a minute each
	hack/fuzz

.PHONY: cluster-up cluster-down cluster-status
cluster-up: tools-cluster ## start a real single-node Kubernetes on this machine
	$(TESTKIT) cluster-up
cluster-down: ## stop it and remove what it left
	$(TESTKIT) cluster-down
cluster-status: ## say whether it runs, and how to reach it
	$(TESTKIT) cluster-status

.PHONY: static
static: tools-base ## the static release binary (musl)
	hack/build-static

.PHONY: release
release: tools-base ## the files of a release for this architecture, in target/dist
	hack/release

.PHONY: docs
docs: ## build the documentation as a book, in target/book
	@hack/install docs
	mdbook build docs

.PHONY: generate
generate: ## write the generated files anew (CRDs, CLI reference, files of the chart)
	hack/generate

.PHONY: tools-base tools-check tools-cluster tools-all
tools-base:
	@hack/install base
tools-check:
	@hack/install check
tools-cluster:
	@hack/install cluster
tools-all:
	@hack/install all
