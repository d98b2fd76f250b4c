//! The environment of containers.

use crate::node::{Cluster, SLEEP, pod};

const VARIABLES: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {COLOUR: red, SHAPE: round}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {PASSWORD: hunter2}
---
apiVersion: v1
kind: Service
metadata: {name: data-base}
spec: {clusterIP: 10.0.0.7, ports: [{name: sql, port: 5432}, {name: more, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: told, labels: {app: web}, annotations: {example.com/size: big}}
spec:
  containers:
  - name: main
    image: any
    command: [sh, -c, 'echo "$@"; exec sleep 1000', sh]
    args: ["$(ALIAS)", "$$(ALIAS)", "$(UNKNOWN)"]
    resources: {limits: {memory: 1Gi}, requests: {cpu: 300m}}
    envFrom:
    - {prefix: MAP_, configMapRef: {name: settings}}
    - {secretRef: {name: key}}
    - {configMapRef: {name: nowhere, optional: true}}
    env:
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: COLOUR}}}
    - {name: ABSENT, valueFrom: {secretKeyRef: {name: key, key: nothing, optional: true}}}
    - {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: SIZE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['example.com/size']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
    - {name: PASSWORD, value: changed}
    - {name: ALIAS, value: "$(PASSWORD)-$$(PASSWORD)-$(DATA_BASE_SERVICE_HOST)"}
"#;

#[tokio::test]
async fn containers_get_fields_resources_keys_and_services() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(VARIABLES).await;
    kubectl.run("wait --for=condition=Ready pod/told --timeout=60s").await;
    let environment = kubectl.run("exec told -- env").await;
    let value = |name: &str| environment.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    let port = cluster.server.address().port().to_string();
    let wanted = [
        ("MAP_COLOUR", "red"),
        ("MAP_SHAPE", "round"),
        ("COLOUR", "red"),
        ("PASSWORD", "changed"),
        ("POD", "told"),
        ("NAMESPACE", "default"),
        ("APP", "web"),
        ("SIZE", "big"),
        ("NODE", "local"),
        ("ACCOUNT", "default"),
        ("ADDRESS", "127.0.0.1"),
        ("MEMORY", "1024"),
        ("CPU", "1"),
        ("ALIAS", "changed-$(PASSWORD)-10.0.0.7"),
        ("DATA_BASE_SERVICE_HOST", "10.0.0.7"),
        ("DATA_BASE_SERVICE_PORT", "5432"),
        ("DATA_BASE_SERVICE_PORT_MORE", "53"),
        ("DATA_BASE_PORT", "tcp://10.0.0.7:5432"),
        ("DATA_BASE_PORT_53_UDP_ADDR", "10.0.0.7"),
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", port.as_str()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port.as_str()),
    ];
    for (name, expected) in wanted {
        assert_eq!(value(name), Some(expected), "{name} in {environment}");
    }
    for absent in ["ABSENT", "SHAPE", "HEADLESS_SERVICE_PORT"] {
        assert_eq!(value(absent), None, "{absent}");
    }
    assert_eq!(kubectl.run("logs told").await, "changed-$(PASSWORD)-10.0.0.7 $(ALIAS) $(UNKNOWN)\n");
    cluster.apply(&pod("unlinked", "enableServiceLinks: false,", SLEEP)).await;
    kubectl.run("wait --for=condition=Ready pod/unlinked --timeout=60s").await;
    let environment = kubectl.run("exec unlinked -- env").await;
    assert!(environment.contains("KUBERNETES_SERVICE_HOST=") && !environment.contains("DATA_BASE"), "{environment}");
    cluster.shut_down().await;
}

#[tokio::test]
async fn missing_variables_are_waited_for_and_unsupported_ones_rejected() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: there}, data: {a: b}}").await;
    let cases = [
        ("map", "configMapKeyRef: {name: late, key: a}", "CreateContainerConfigError", "configmap \"late\" not found"),
        ("secret", "secretKeyRef: {name: late, key: a}", "CreateContainerConfigError", "secret \"late\" not found"),
        (
            "key",
            "configMapKeyRef: {name: there, key: c}",
            "CreateContainerConfigError",
            "couldn't find key c in ConfigMap default/there",
        ),
        (
            "field",
            "fieldRef: {fieldPath: spec.restartPolicy}",
            "CreateContainerError",
            "variable X: fieldPath \"spec.restartPolicy\" is not supported",
        ),
        (
            "labels",
            "fieldRef: {fieldPath: metadata.labels}",
            "CreateContainerError",
            "variable X: fieldPath \"metadata.labels\" is not supported",
        ),
        (
            "file",
            "fileKeyRef: {volumeName: v, path: p, key: k}",
            "CreateContainerError",
            "variable X: the embedded node does not support fileKeyRef",
        ),
    ];
    for (name, source, ..) in &cases {
        let env = format!("image: any, env: [{{name: X, valueFrom: {{{source}}}}}],");
        cluster.apply(&pod(name, "", SLEEP).replace("image: any,", &env)).await;
    }
    for (name, _, reason, words) in &cases {
        cluster
            .wait_for_value(&format!("pod/{name}"), "{.status.containerStatuses[0].state.waiting.message}", words)
            .await;
        cluster
            .wait_for_value(&format!("pod/{name}"), "{.status.containerStatuses[0].state.waiting.reason}", reason)
            .await;
    }
    cluster.shut_down().await;
}
