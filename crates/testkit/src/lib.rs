//! What the tests stand on: a real Kubernetes, real peers, fault injection.
