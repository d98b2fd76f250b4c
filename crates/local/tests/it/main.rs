//! The embedded API, held against what Kubernetes does.

mod conformance;
mod embedded;
