//! The objects, as values. `deploy/install.yaml` is what this gives without further options.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use plimsoll_api::labels::{PART_OF, PART_OF_PLIMSOLL};
use plimsoll_controllers::rbac::{AGENT, AGENT_NAMESPACE, Rule, SERVER, SERVER_NAMESPACE};
use plimsoll_operations::leader_label::LEADER_LABEL;
use serde_json::{Value, json};

use crate::args::install::{Install, LocationVolume, Uploader};
use crate::commands::create::pairs;
use crate::commands::plugin::plugin_container;
use crate::errors::UsageError;

use super::blueprint_policy::blueprint_policy;
use super::protection;

/// The server: Deployment, ServiceAccount, Service, roles.
pub const SERVER_NAME: &str = "plimsoll";
/// The agents: DaemonSet, ServiceAccount, roles.
pub const AGENT_NAME: &str = "plimsoll-agent";
/// The port for downloads from directory locations.
pub(super) const DOWNLOADS: u16 = 8085;
/// The port for the dashboard, the event stream and metrics.
pub(super) const DASHBOARD: u16 = 8086;
/// The port of the agents for progress requests.
pub(super) const PROGRESS_PORT: u16 = 8087;
/// The volume of a location in a directory.
const LOCATION: &str = "location";
pub(super) const NAME: &str = "app.kubernetes.io/name";
/// The container of the server, called as in Velero's Deployment: its command line looks for that when it adds plugins.
pub const SERVER_CONTAINER: &str = "velero";
/// The volume that init containers copy plugins into, called as Velero calls it.
pub const PLUGINS: &str = "plugins";
/// The directory of plugins in the server's container.
pub const PLUGINS_DIRECTORY: &str = "/plugins";

/// Everything, in the order in which it is applied.
pub fn all(namespace: &str, options: &Install) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    if !options.no_crds {
        for definition in plimsoll_api::crds() {
            let mut definition = serde_json::to_value(definition)?;
            definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
            definition["kind"] = json!("CustomResourceDefinition");
            all.push(definition);
        }
    }
    if options.crds_only {
        return Ok(all);
    }
    all.push(namespace_object(namespace));
    all.extend(accounts(namespace, options)?);
    all.extend(roles(namespace, options.use_node_agent, options.service_account_name.as_deref()));
    all.extend(location(namespace, options)?);
    all.extend(snapshot_location(namespace, options)?);
    all.push(service(namespace));
    all.extend(protection::network_policies(namespace, options.use_node_agent));
    // An account that the server shares writes the transfers of all nodes.
    if options.use_node_agent && options.service_account_name.is_none() {
        all.extend(protection::agent_policy(namespace));
    }
    all.extend(blueprint_policy(namespace));
    all.push(deployment(namespace, options)?);
    if options.use_node_agent {
        all.push(daemon_set(namespace, options)?);
    }
    Ok(all)
}

/// The objects that `uninstall` removes: those outside of the namespace, and those in it that are not the user's.
pub fn removable(namespace: &str) -> Vec<Value> {
    let mut all = vec![
        object("apps/v1", "DaemonSet", AGENT_NAME, Some(namespace)),
        object("apps/v1", "Deployment", SERVER_NAME, Some(namespace)),
        object("v1", "Service", SERVER_NAME, Some(namespace)),
    ];
    all.extend(roles(namespace, true, None));
    all.extend(protection::network_policies(namespace, true));
    all.extend(protection::agent_policy(namespace));
    all.extend(blueprint_policy(namespace));
    for name in [SERVER_NAME, AGENT_NAME] {
        all.push(object("v1", "ServiceAccount", name, Some(namespace)));
    }
    all
}

/// An object with a name and our labels.
pub fn object(version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "labels": { PART_OF: PART_OF_PLIMSOLL } } });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// The agents read other pods' volumes: where pods are held to a standard, theirs must be the free one.
fn namespace_object(namespace: &str) -> Value {
    let mut object = object("v1", "Namespace", namespace, None);
    for mode in ["enforce", "audit", "warn"] {
        object["metadata"]["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!("privileged");
    }
    object
}

fn accounts(namespace: &str, options: &Install) -> anyhow::Result<Vec<Value>> {
    if options.service_account_name.is_some() {
        return Ok(Vec::new());
    }
    let annotations = pairs("annotation", &options.sa_annotations)?;
    let names = [(SERVER_NAME, true), (AGENT_NAME, options.use_node_agent)];
    let wanted = names.into_iter().filter(|(_, wanted)| *wanted);
    Ok(wanted
        .map(|(name, _)| {
            let mut account = object("v1", "ServiceAccount", name, Some(namespace));
            if !annotations.is_empty() {
                account["metadata"]["annotations"] = json!(annotations);
            }
            account
        })
        .collect())
}

/// `account`: the service account of all pods, unless they have their own.
fn roles(namespace: &str, agents: bool, account: Option<&str>) -> Vec<Value> {
    let mut all = role_pair(namespace, SERVER_NAME, account, SERVER, SERVER_NAMESPACE);
    if agents {
        all.extend(role_pair(namespace, AGENT_NAME, account, AGENT, AGENT_NAMESPACE));
    }
    all
}

/// A role for the cluster and one for the namespace, bound to an account, by default that of the same name. Cluster-wide names carry the
/// namespace: two installations do not share them.
fn role_pair(namespace: &str, name: &str, account: Option<&str>, cluster: &[Rule], own: &[Rule]) -> Vec<Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let version = format!("{GROUP}/v1");
    let wide = format!("{name}-{namespace}");
    let rule = |right: &Rule| json!({ "apiGroups": right.groups, "resources": right.resources, "verbs": right.verbs });
    let rules = |rights: &[Rule]| rights.iter().map(rule).collect::<Vec<_>>();
    let account = account.unwrap_or(name);
    let subject = json!([{ "kind": "ServiceAccount", "name": account, "namespace": namespace }]);
    let refers = |kind: &str, name: &str| json!({ "apiGroup": GROUP, "kind": kind, "name": name });
    let with = |mut object: Value, fields: Value| {
        for (key, value) in fields.as_object().cloned().unwrap_or_default() {
            object[key] = value;
        }
        object
    };
    vec![
        with(object(&version, "ClusterRole", &wide, None), json!({ "rules": rules(cluster) })),
        with(
            object(&version, "ClusterRoleBinding", &wide, None),
            json!({ "roleRef": refers("ClusterRole", &wide), "subjects": subject }),
        ),
        with(object(&version, "Role", name, Some(namespace)), json!({ "rules": rules(own) })),
        with(
            object(&version, "RoleBinding", name, Some(namespace)),
            json!({ "roleRef": refers("Role", name), "subjects": subject }),
        ),
    ]
}

/// The default location and its credentials.
fn location(namespace: &str, options: &Install) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    if let Some(file) = &options.secret_file {
        let content = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut secret = object("v1", "Secret", "cloud-credentials", Some(namespace));
        secret["type"] = json!("Opaque");
        secret["data"] = json!({ "cloud": ByteString(content) });
        all.push(secret);
    }
    let (provider, bucket) = match (&options.provider, &options.bucket) {
        (Some(provider), Some(bucket)) => (provider, bucket),
        (None, None) => return Ok(all),
        _ => bail!(UsageError("a backup location needs both --provider and --bucket".into())),
    };
    if options.location_volume.is_some() && (provider != "directory" || !bucket.starts_with('/')) {
        bail!(UsageError("--location-volume requires --provider directory and an absolute path as --bucket".into()));
    }
    if provider != "directory" && options.secret_file.is_none() && !options.no_secret {
        bail!(UsageError("pass the credentials with --secret-file, or --no-secret if there are none".into()));
    }
    let mut location = object("velero.io/v1", "BackupStorageLocation", "default", Some(namespace));
    location["spec"] = json!({ "provider": provider, "default": true, "objectStorage": { "bucket": bucket } });
    if let Some(prefix) = &options.prefix {
        location["spec"]["objectStorage"]["prefix"] = json!(prefix);
    }
    if let Some(file) = &options.cacert {
        let pem = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        location["spec"]["objectStorage"]["caCert"] = json!(ByteString(pem));
    }
    let config: BTreeMap<String, String> = pairs("setting", &options.backup_location_config)?;
    if !config.is_empty() {
        location["spec"]["config"] = json!(config);
    }
    all.push(location);
    Ok(all)
}

/// The snapshot location of the provider, where there are plugins to take snapshots.
fn snapshot_location(namespace: &str, options: &Install) -> anyhow::Result<Option<Value>> {
    let Some(provider) = &options.provider else { return Ok(None) };
    let configured = !options.snapshot_location_config.is_empty();
    let wanted = options.use_volume_snapshots.unwrap_or(configured || !options.plugins.is_empty());
    if !wanted {
        return Ok(None);
    }
    let mut location = object("velero.io/v1", "VolumeSnapshotLocation", "default", Some(namespace));
    location["spec"] = json!({ "provider": provider });
    let config: BTreeMap<String, String> = pairs("setting", &options.snapshot_location_config)?;
    if !config.is_empty() {
        location["spec"]["config"] = json!(config);
    }
    Ok(Some(location))
}

/// Selects the leader.
fn service(namespace: &str) -> Value {
    let mut service = object("v1", "Service", SERVER_NAME, Some(namespace));
    service["spec"] = json!({
        "selector": { NAME: SERVER_NAME, LEADER_LABEL: "true" },
        "ports": [
            { "name": "downloads", "port": DOWNLOADS, "targetPort": "downloads", "protocol": "TCP" },
            { "name": "dashboard", "port": DASHBOARD, "targetPort": "dashboard", "protocol": "TCP" },
        ],
    });
    service
}

fn deployment(namespace: &str, options: &Install) -> anyhow::Result<Value> {
    let mut arguments = vec![
        "server".to_owned(),
        format!("--namespace={namespace}"),
        "--scratch-dir=/scratch".into(),
        format!("--download-address=0.0.0.0:{DOWNLOADS}"),
        format!("--download-url=http://{SERVER_NAME}.{namespace}.svc:{DOWNLOADS}"),
        format!("--dashboard-address=0.0.0.0:{DASHBOARD}"),
    ];
    if options.default_volumes_to_fs_backup {
        if !options.use_node_agent {
            bail!(UsageError(
                "--default-volumes-to-fs-backup needs the node agents; remove --use-node-agent=false".into()
            ));
        }
        arguments.push("--default-volumes-to-fs-backup=true".into());
    }
    arguments.extend(options.server_arguments.iter().cloned());
    let mut container = container(options, SERVER_CONTAINER, &arguments);
    let account = json!({ "name": "POD_SERVICE_ACCOUNT", "valueFrom": { "fieldRef": { "fieldPath": "spec.serviceAccountName" } } });
    // In the environment, so that an argument of the user's counts more.
    let tools = json!({ "name": "PLIMSOLL_TOOLS_IMAGE", "value": options.image });
    if let Some(environment) = container["env"].as_array_mut() {
        environment.extend([account, tools]);
    }
    container["ports"] = json!([
        { "name": "downloads", "containerPort": DOWNLOADS, "protocol": "TCP" },
        { "name": "dashboard", "containerPort": DASHBOARD, "protocol": "TCP" },
    ]);
    container["volumeMounts"] =
        json!([mount("/scratch", "scratch"), mount("/tmp", "tmp"), mount(PLUGINS_DIRECTORY, PLUGINS)]);
    container["resources"] = resources(
        (&options.server_cpu_request, &options.server_mem_request),
        (&options.server_cpu_limit, &options.server_mem_limit),
    );
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
    });
    add_probes(&mut container, "dashboard");
    let mut pod = pod(SERVER_NAME, options, &container)?;
    collect_metrics(&mut pod);
    set_priority_class(&mut pod, options.server_priority_class_name.as_deref());
    if !options.plugins.is_empty() {
        let plugins = options.plugins.iter().map(|image| plugin_container(image, &options.image_pull_policy));
        pod["spec"]["initContainers"] = plugins.collect();
    }
    pod["spec"]["volumes"] = json!([empty("scratch"), empty("tmp"), empty(PLUGINS)]);
    pod["spec"]["securityContext"] = json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    if options.location_volume.is_some() {
        // Agents write the same files as root: the server has to own them too. It keeps no capability.
        pod["spec"]["securityContext"] = json!({ "runAsUser": 0, "seccompProfile": { "type": "RuntimeDefault" } });
    }
    mount_location(&mut pod, options);
    let mut deployment = object("apps/v1", "Deployment", SERVER_NAME, Some(namespace));
    deployment["metadata"]["labels"][NAME] = json!(SERVER_NAME);
    // By this `velero plugin add` and `remove` find it.
    deployment["metadata"]["labels"]["component"] = json!("velero");
    deployment["spec"] = json!({
        "replicas": options.replicas, "selector": { "matchLabels": { NAME: SERVER_NAME } }, "template": pod,
    });
    Ok(deployment)
}

/// Annotations for metrics collectors, unless the user sets them.
fn collect_metrics(pod: &mut Value) {
    let port = DASHBOARD.to_string();
    for (name, value) in [("scrape", "true"), ("path", "/metrics"), ("port", port.as_str())] {
        let said = &mut pod["metadata"]["annotations"][format!("prometheus.io/{name}")];
        if said.is_null() {
            *said = json!(value);
        }
    }
}

fn daemon_set(namespace: &str, options: &Install) -> anyhow::Result<Value> {
    let mut arguments = vec![
        "agent".to_owned(),
        format!("--namespace={namespace}"),
        "--pods-directory=/host_pods".into(),
        "--cache-dir=/scratch/cache".into(),
        format!("--progress-address=0.0.0.0:{PROGRESS_PORT}"),
    ];
    arguments.extend(options.agent_arguments.iter().cloned());
    let mut container = container(options, "agent", &arguments);
    container["ports"] = json!([{ "name": "progress", "containerPort": PROGRESS_PORT, "protocol": "TCP" }]);
    let own = json!({ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } });
    if let Some(environment) = container["env"].as_array_mut() {
        environment.push(own);
    }
    // Volumes that are mounted on the node later than the agent starts must show up in it.
    let pods = json!({ "name": "host-pods", "mountPath": "/host_pods", "mountPropagation": "HostToContainer" });
    container["volumeMounts"] = json!([pods, mount("/scratch", "scratch"), mount("/tmp", "tmp")]);
    container["resources"] = resources(
        (&options.agent_cpu_request, &options.agent_mem_request),
        (&options.agent_cpu_limit, &options.agent_mem_limit),
    );
    container["securityContext"] = agent_security(options.privileged_node_agent);
    add_probes(&mut container, "progress");
    let mut pod = pod(AGENT_NAME, options, &container)?;
    set_priority_class(&mut pod, options.agent_priority_class_name.as_deref());
    let path = format!("{}/pods", options.kubelet_root_dir.trim_end_matches('/'));
    pod["spec"]["volumes"] =
        json!([{ "name": "host-pods", "hostPath": { "path": path } }, empty("scratch"), empty("tmp")]);
    mount_location(&mut pod, options);
    // Every file of every pod is read and written with its owner.
    pod["spec"]["securityContext"] = json!({ "runAsUser": 0, "seccompProfile": { "type": "RuntimeDefault" } });
    // A volume on a node that keeps others away is backed up too.
    pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    let mut set = object("apps/v1", "DaemonSet", AGENT_NAME, Some(namespace));
    set["metadata"]["labels"][NAME] = json!(AGENT_NAME);
    set["spec"] = json!({ "selector": { "matchLabels": { NAME: AGENT_NAME } }, "template": pod });
    Ok(set)
}

/// Root without the capabilities that reading and writing files does not need.
fn agent_security(privileged: bool) -> Value {
    if privileged {
        return json!({ "privileged": true, "readOnlyRootFilesystem": true });
    }
    // Files of any owner and mode, with their owners, modes, device numbers and file capabilities.
    let needed = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"];
    json!({
        "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"], "add": needed },
    })
}

/// A program that no longer answers is restarted, and gets no requests until it answers.
fn add_probes(container: &mut Value, port: &str) {
    let probe = json!({ "httpGet": { "path": "/healthz", "port": port }, "timeoutSeconds": 5, "failureThreshold": 8 });
    container["livenessProbe"] = probe.clone();
    container["readinessProbe"] = probe;
}

/// The volume of a location in a directory, where the location expects it.
fn mount_location(pod: &mut Value, options: &Install) {
    let (Some(volume), Some(path)) = (&options.location_volume, &options.bucket) else { return };
    let source = match volume {
        LocationVolume::HostPath(path) => json!({ "name": LOCATION, "hostPath": { "path": path } }),
        LocationVolume::Claim(name) => json!({ "name": LOCATION, "persistentVolumeClaim": { "claimName": name } }),
        LocationVolume::Nfs { server, path } => json!({ "name": LOCATION, "nfs": { "server": server, "path": path } }),
    };
    let mounted = mount(path, LOCATION);
    for (place, one) in [("/spec/volumes", source), ("/spec/containers/0/volumeMounts", mounted)] {
        if let Some(all) = pod.pointer_mut(place).and_then(Value::as_array_mut) {
            all.push(one);
        }
    }
}

fn container(options: &Install, name: &str, arguments: &[String]) -> Value {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mover = match options.uploader_type {
        Uploader::Auto => "auto",
        Uploader::BuiltIn => "built-in",
        Uploader::Restic => "restic",
        Uploader::Kopia => "kopia",
    };
    let mut container = json!({
        "name": name, "image": options.image, "imagePullPolicy": options.image_pull_policy,
        "command": ["/plimsoll"], "args": arguments,
        "env": [
            field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
            // Locks in repositories name it: no other cluster has a pod with this UID.
            field("POD_UID", "metadata.uid"), field("NODE_NAME", "spec.nodeName"),
            { "name": "PLIMSOLL_IMAGE", "value": options.image }, { "name": "PLIMSOLL_UPLOADER_TYPE", "value": mover },
            // The allocator gives freed memory back at once.
            { "name": "MIMALLOC_PURGE_DELAY", "value": "0" },
        ],
    });
    if let (Some(name), Some(environment)) = (&options.node_agent_configmap, container["env"].as_array_mut()) {
        environment.push(json!({ "name": "PLIMSOLL_NODE_AGENT_CONFIGMAP", "value": name }));
    }
    container
}

fn pod(name: &str, options: &Install, container: &Value) -> anyhow::Result<Value> {
    let mut labels = pairs("label", &options.pod_labels)?;
    labels.insert(NAME.into(), name.into());
    labels.insert(PART_OF.into(), PART_OF_PLIMSOLL.into());
    let annotations = pairs("annotation", &options.pod_annotations)?;
    let mut pod = json!({
        "metadata": { "labels": labels },
        // The image is of Linux: on a node of another system its pod would never be ready.
        "spec": { "serviceAccountName": options.service_account_name.as_deref().unwrap_or(name), "containers": [container], "terminationGracePeriodSeconds": 30,
            "nodeSelector": { "kubernetes.io/os": "linux" } },
    });
    if !annotations.is_empty() {
        pod["metadata"]["annotations"] = json!(annotations);
    }
    Ok(pod)
}

fn mount(path: &str, name: &str) -> Value {
    json!({ "name": name, "mountPath": path })
}

fn empty(name: &str) -> Value {
    json!({ "name": name, "emptyDir": {} })
}

fn set_priority_class(pod: &mut Value, name: Option<&str>) {
    if let Some(name) = name {
        pod["spec"]["priorityClassName"] = json!(name);
    }
}

/// Requests and limits of CPU and memory; nothing where an amount is zero.
fn resources(requests: (&str, &str), limits: (&str, &str)) -> Value {
    let mut resources = json!({});
    for (kind, (cpu, memory)) in [("requests", requests), ("limits", limits)] {
        for (name, amount) in [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| *amount != "0") {
            resources[kind][name] = json!(amount);
        }
    }
    resources
}
