//! A Kubernetes API inside the binary.
