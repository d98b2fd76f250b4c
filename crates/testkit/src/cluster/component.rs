//! The programs that make up a cluster, and how each is called.

use std::path::{Path, PathBuf};

use crate::cache;
use crate::enclosure::Addresses;
use crate::skip::Unavailable;

/// One program of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// The database.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers of Kubernetes itself.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// The container runtime.
    Containerd,
    /// The node's agent.
    Kubelet,
    /// Routes service addresses.
    KubeProxy,
}

impl Component {
    /// All components, in the order in which they are started.
    pub const ALL: [Self; 7] = [
        Self::Etcd,
        Self::Containerd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
        Self::KubeProxy,
    ];

    /// The name of its program, log file and user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }

    /// Where its program is installed.
    pub fn program(self) -> Result<PathBuf, Unavailable> {
        match self {
            Self::Containerd => cache::system_program(self.name()),
            _ => cache::program(self.name()),
        }
    }

    /// The loopback address of this component only, as client or server, so that a packet filter can isolate it.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Etcd => "127.0.0.11",
            Self::ApiServer | Self::Containerd => "127.0.0.1",
            Self::ControllerManager => "127.0.0.12",
            Self::Scheduler => "127.0.0.13",
            Self::Kubelet => "127.0.0.14",
            Self::KubeProxy => "127.0.0.15",
        }
    }

    /// Its arguments; `state` is the cluster's directory, prepared by `settings`.
    pub(super) fn arguments(self, addresses: Addresses, state: &Path) -> Vec<String> {
        let file = |name: &str| state.join(name).display().to_string();
        match self {
            Self::Etcd => etcd(&file("etcd")),
            Self::ApiServer => api_server(addresses, file),
            Self::ControllerManager => controller_manager(file),
            Self::Scheduler => scheduler(file),
            Self::Containerd => vec![format!("--config={}", file("containerd.toml")), "--log-level=warn".into()],
            Self::Kubelet => kubelet(addresses, file),
            Self::KubeProxy => vec![format!("--config={}", file("kube-proxy.json"))],
        }
    }
}

fn etcd(data: &str) -> Vec<String> {
    let client = format!("http://{}:2379", Component::Etcd.address());
    vec![
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls=http://{}:2380", Component::Etcd.address()),
        "--unsafe-no-fsync".into(),
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=warn".into(),
    ]
}

fn api_server(addresses: Addresses, file: impl Fn(&str) -> String) -> Vec<String> {
    vec![
        format!("--etcd-servers=http://{}:2379", Component::Etcd.address()),
        "--bind-address=0.0.0.0".into(),
        format!("--advertise-address={}", addresses.node()),
        format!("--service-cluster-ip-range={}", addresses.services()),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
    ]
}

fn controller_manager(file: impl Fn(&str) -> String) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", file("kube-controller-manager.kubeconfig")),
        format!("--service-account-private-key-file={}", file("accounts.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        // A namespace with little in it takes some sixty requests to delete, and tests wait for that.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--pvclaimbinder-sync-period=1s".into(),
    ]
}

fn scheduler(file: impl Fn(&str) -> String) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", file("kube-scheduler.kubeconfig")),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
    ]
}

fn kubelet(addresses: Addresses, file: impl Fn(&str) -> String) -> Vec<String> {
    vec![
        format!("--config={}", file("kubelet.json")),
        format!("--kubeconfig={}", file("kubelet.kubeconfig")),
        format!("--hostname-override={}", super::NODE),
        format!("--node-ip={}", addresses.node()),
    ]
}
