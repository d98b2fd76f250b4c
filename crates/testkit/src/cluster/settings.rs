//! The files that the components read at their start.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::certificates;
use super::component::Component;
use crate::enclosure::Addresses;
use crate::image;

/// The bearer token of the tests, with all permissions.
pub const ADMIN_TOKEN: &str = "plimsoll-admin";

/// Writes all of them into the cluster's directory.
pub fn write(addresses: Addresses, state: &Path) -> Result<()> {
    certificates::write(addresses, state)?;
    fs::write(state.join("tokens.csv"), tokens())?;
    for component in Component::ALL {
        let server = format!("https://{}:6443", component.address());
        let config = kubeconfig(&server, &token_of(component), state);
        write_json(&state.join(format!("{}.kubeconfig", component.name())), &config)?;
    }
    let admin = kubeconfig(&format!("https://{}:6443", addresses.node()), ADMIN_TOKEN, state);
    write_json(&state.join("kubeconfig"), &admin)?;
    fs::write(state.join("containerd.toml"), containerd(state))?;
    fs::create_dir_all(state.join("cni"))?;
    write_json(&state.join("cni/10-bridge.conflist"), &cni(addresses))?;
    fs::write(state.join("resolv.conf"), "")?;
    write_json(&state.join("kubelet.json"), &kubelet(addresses.slot(), state))?;
    write_json(&state.join("kube-proxy.json"), &kube_proxy(addresses, state))
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    Ok(fs::write(path, serde_json::to_vec_pretty(value)?)?)
}

fn token_of(component: Component) -> String {
    format!("plimsoll-{}", component.name())
}

fn tokens() -> String {
    let component = |c: Component| format!("{},system:{},{},\"system:masters\"\n", token_of(c), c.name(), c.name());
    let admin = format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n");
    Component::ALL.map(component).concat() + &admin
}

fn kubeconfig(server: &str, token: &str, state: &Path) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": server, "tls-server-name": "localhost", "certificate-authority": state.join("ca.crt"),
        }}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
}

// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE every sandbox would fail when it lowers its own score.
fn containerd(state: &Path) -> String {
    let state = state.display();
    format!(
        r#"version = 2
root = "{state}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{state}/cni"
"#,
        pause = image::PAUSE,
    )
}

fn cni(addresses: Addresses) -> Value {
    let ipam =
        json!({"type": "host-local", "ranges": [[{"subnet": addresses.pods()}]], "routes": [{"dst": "0.0.0.0/0"}]});
    json!({
        "cniVersion": "0.4.0", "name": "pods",
        "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet(slot: u8, state: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/plimsoll-{slot}"), "failCgroupV1": false,
        "failSwapOn": false, "oomScoreAdj": 0,
        // A full disk must not evict pods or remove images that cannot be pulled again.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": state.join("resolv.conf"),
        "maxPods": 200,
        "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s", "volumeStatsAggPeriod": "0s",
    })
}

fn kube_proxy(addresses: Addresses, state: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": state.join("kube-proxy.kubeconfig")},
        "mode": "iptables", "clusterCIDR": addresses.pods(), "hostnameOverride": super::NODE,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    })
}
