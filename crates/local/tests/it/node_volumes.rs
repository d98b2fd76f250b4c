//! Volumes that the node fills with files: projected, downwardAPI, configMap and secret, as the kubelet does it.

use crate::{
    conformance::eventually,
    kubectl::{Kubectl, text},
    node::{Cluster, SLEEP, pod},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt, process::Output};

/// The directory of the service account token in every pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const REASON: &str = "{.status.containerStatuses[0].state.waiting.reason}";

/// A pod as a restore from another cluster creates it, with the fields that admission added there.
fn restored_pod(name: &str, command: &[&str]) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"app": "web", "velero.io/backup-name": "b", "velero.io/restore-name": "r"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": "2024-05-01T10:00:00Z"},
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example/web:1.27", "imagePullPolicy": "IfNotPresent", "command": command,
                "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "kube-api-access-7xk2p", "mountPath": ACCOUNT, "readOnly": true}],
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "web", "serviceAccountName": "web", "terminationGracePeriodSeconds": 30,
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api-access-7xk2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                {"downwardAPI": {"items": [
                    {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"},
                ]}},
            ]}}],
        },
    })
    .to_string()
}

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
";

/// A request with a token and nothing else of the kubeconfig.
async fn with_token(cluster: &Cluster, token: &str) -> Output {
    let credentials = cluster.server.kubeconfig_path().parent().unwrap();
    let bare = Kubectl {
        program: cluster.kubectl.program.clone(),
        kubeconfig: "/dev/null".into(),
        cache: credentials.join("bare-cache"),
    };
    let authority = credentials.join("ca.crt").display().to_string();
    let server = format!("--server=https://{} --certificate-authority={authority}", cluster.server.address());
    bare.output(&format!("get configmaps {server} --token={token}")).await
}

fn claims(token: &str) -> Value {
    let parts: Vec<&str> = token.split('.').collect();
    assert_eq!(parts.len(), 3, "{token}");
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap()
}

#[tokio::test]
async fn a_restored_pod_starts_and_its_token_is_valid_while_it_exists() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(SHOP).await;
    let file =
        crate::kubectl::write(cluster.embedded.directory.path(), "web.json", &restored_pod("web", &["sleep", "1000"]));
    kubectl.run(&format!("apply -n shop -f {file}")).await;
    kubectl.run("wait -n shop --for=condition=Ready pod/web --timeout=60s").await;
    let exec = |line: String| async move { kubectl.run(&format!("exec -n shop web -- {line}")).await };
    assert_eq!(exec(format!("cat {ACCOUNT}/namespace")).await, "shop");
    let authority = std::fs::read_to_string(cluster.server.kubeconfig_path().with_file_name("ca.crt")).unwrap();
    assert_eq!(exec(format!("cat {ACCOUNT}/ca.crt")).await, authority);
    assert_eq!(exec(format!("stat -L -c %a {ACCOUNT}/token {ACCOUNT}/ca.crt")).await, "644\n644\n");
    assert!(kubectl.fail(&format!("exec -n shop web -- touch {ACCOUNT}/x")).await.contains("Read-only"));

    let token = exec(format!("cat {ACCOUNT}/token")).await;
    let (claims, shown) = (claims(&token), cluster.json("pod web -n shop").await);
    assert_eq!(claims["sub"], "system:serviceaccount:shop:web");
    assert_eq!(claims["aud"], json!(["https://kubernetes.default.svc"]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3607);
    let bound = &claims["kubernetes.io"];
    assert_eq!((&bound["namespace"], &bound["pod"]["name"]), (&"shop".into(), &"web".into()));
    assert_eq!(bound["pod"]["uid"], shown["metadata"]["uid"]);
    let accepted = with_token(&cluster, &token).await;
    assert!(accepted.status.success(), "{}", text(&accepted.stderr));
    let forged = format!("{}x", &token[..token.len() - 1]);
    kubectl.run("delete pod web -n shop --timeout=30s").await;
    for (rejected, why) in [(forged, "forged"), (token, "its pod is deleted")] {
        let output = with_token(&cluster, &rejected).await;
        assert!(!output.status.success(), "{why}");
        assert!(text(&output.stderr).contains("logged in"), "{why}: {}", text(&output.stderr));
    }
    cluster.shut_down().await;
}

#[tokio::test]
async fn a_program_in_a_pod_reaches_the_api_in_cluster() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(SHOP).await;
    let program = cluster.kubectl.program.display().to_string();
    let asking = restored_pod("asking", &[&program, "get", "pod", "asking", "-o", "jsonpath={.metadata.name}"])
        .replace("\"Always\"", "\"Never\"");
    let file = crate::kubectl::write(cluster.embedded.directory.path(), "asking.json", &asking);
    cluster.kubectl.run(&format!("apply -n shop -f {file}")).await;
    let ended = || async {
        let phase = cluster.json("pod asking -n shop").await["status"]["phase"].as_str().unwrap().to_owned();
        ["Succeeded", "Failed"].contains(&phase.as_str()).then_some(())
    };
    eventually("the request was sent", ended).await;
    assert_eq!(cluster.kubectl.run("logs asking -n shop").await, "asking");
    cluster.shut_down().await;
}

#[tokio::test]
async fn every_namespace_has_the_root_ca_and_the_default_account() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    let authority = std::fs::read_to_string(cluster.server.kubeconfig_path().with_file_name("ca.crt")).unwrap();
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await;
    for namespace in ["default", "kube-system", "shop"] {
        let published = format!("configmap/kube-root-ca.crt -n {namespace}");
        cluster.wait_for_value(&published, r"{.data.ca\.crt}", &authority).await;
        cluster.wait_for_value(&format!("serviceaccount/default -n {namespace}"), "{.metadata.name}", "default").await;
    }
    // As after a restore from another cluster.
    kubectl
        .run(r#"patch configmap kube-root-ca.crt -n shop --type=merge -p {"data":{"ca.crt":"strange","other":"x"}}"#)
        .await;
    cluster.wait_for_value("configmap/kube-root-ca.crt -n shop", r"{.data.ca\.crt}", &authority).await;
    cluster.wait_for_value("configmap/kube-root-ca.crt -n shop", "{.data.other}", "").await;
    kubectl.run("delete configmap kube-root-ca.crt -n shop").await;
    kubectl.run("delete serviceaccount default -n shop").await;
    cluster.wait_for_value("configmap/kube-root-ca.crt -n shop", r"{.data.ca\.crt}", &authority).await;
    cluster.wait_for_value("serviceaccount/default -n shop", "{.metadata.name}", "default").await;
    kubectl.run("delete namespace shop --timeout=30s").await;
    cluster.shut_down().await;
}

const PROJECTED_POD: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red, shape: round}
binaryData: {raw: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hunter2}
---
apiVersion: v1
kind: Pod
metadata:
  name: gathered
  labels: {app: web, tier: front}
  annotations: {note: "say \"hi\"\nnow", example.com/size: big}
spec:
  volumes:
  - name: all
    projected:
      defaultMode: 288
      sources:
      - configMap: {name: settings, items: [{key: colour, path: deep/colour, mode: 256}, {key: raw, path: raw}]}
      - secret: {name: key}
      - configMap: {name: nowhere, optional: true}
      - secret: {name: key, optional: true, items: [{key: nothing, path: nothing}]}
      - serviceAccountToken: {audience: vault, path: vault/token}
      - downwardAPI:
          items:
          - {path: labels, fieldRef: {fieldPath: metadata.labels}}
          - {path: limit, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}, mode: 292}
  - name: me
    downwardAPI:
      items:
      - {path: name, fieldRef: {fieldPath: metadata.name}}
      - {path: uid, fieldRef: {fieldPath: metadata.uid}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
      - {path: tier, fieldRef: {fieldPath: "metadata.labels['tier']"}}
      - {path: size, fieldRef: {fieldPath: "metadata.annotations['example.com/size']"}}
      - {path: none, fieldRef: {fieldPath: "metadata.labels['none']"}}
      - {path: memory, resourceFieldRef: {containerName: main, resource: requests.memory, divisor: 1Mi}}
      - {path: cpus, resourceFieldRef: {containerName: side, resource: limits.cpu}}
  - name: plain
    configMap: {name: settings}
  - name: absent
    configMap: {name: nowhere, optional: true}
  containers:
  - name: main
    image: any
    command: [sleep, "1000"]
    resources: {limits: {cpu: 1500m}, requests: {memory: 100M}}
    volumeMounts:
    - {name: all, mountPath: /all}
    - {name: me, mountPath: /me}
    - {name: plain, mountPath: /plain}
    - {name: plain, mountPath: /etc/just-one, subPath: colour}
    - {name: absent, mountPath: /absent}
  - {name: side, image: any, command: [sleep, "1000"]}
"#;

#[tokio::test]
async fn projected_and_downward_volumes_have_the_specified_files_and_modes() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(PROJECTED_POD).await;
    kubectl.run("wait --for=condition=Ready pod/gathered --timeout=60s").await;
    let exec = |line: &str| {
        let line = format!("exec gathered -c main -- {line}");
        async move { kubectl.run(&line).await }
    };
    assert_eq!(exec("ls /all").await, "deep\nlabels\nlimit\npassword\nraw\nvault\n");
    assert_eq!(exec("cat /all/deep/colour /all/password").await, "redhunter2");
    assert_eq!(
        exec("stat -L -c %a /all/deep/colour /all/password /all/limit /all/vault/token").await,
        "400\n440\n444\n440\n"
    );
    assert_eq!(exec("od -An -tx1 /all/raw").await, " 00 01 02\n");
    assert_eq!(exec("cat /all/labels").await, "app=\"web\"\ntier=\"front\"");
    assert_eq!(exec("cat /all/limit").await, "1500");
    let token = exec("cat /all/vault/token").await;
    assert_eq!(claims(&token)["aud"], json!(["vault"]));
    assert_eq!(claims(&token)["exp"].as_i64().unwrap() - claims(&token)["iat"].as_i64().unwrap(), 3600);
    assert!(!with_token(&cluster, &token).await.status.success(), "it has another audience");

    let shown = cluster.json("pod gathered").await;
    assert_eq!(exec("cat /me/name").await, "gathered");
    assert_eq!(exec("cat /me/uid").await, shown["metadata"]["uid"].as_str().unwrap());
    let annotations = exec("cat /me/annotations").await;
    assert!(annotations.starts_with("example.com/size=\"big\"\n"), "{annotations}");
    assert!(annotations.ends_with("\nnote=\"say \\\"hi\\\"\\nnow\""), "{annotations}");
    assert_eq!(exec("cat /me/tier /me/size /me/none").await, "frontbig");
    assert_eq!(exec("cat /me/memory").await, "96");
    let cores = std::thread::available_parallelism().unwrap().to_string();
    assert_eq!(exec("cat /me/cpus").await, cores, "without a limit it is the node's");
    assert_eq!(exec("stat -L -c %a /me/name /plain/shape").await, "644\n644\n");
    assert_eq!(exec("cat /etc/just-one").await, "red");
    assert_eq!(exec("ls /absent").await, "");
    assert!(kubectl.fail("exec gathered -c main -- touch /plain/x").await.contains("Read-only"));
    let place = cluster.pod_directory(&shown).join("volumes/kubernetes.io~projected/all");
    assert_eq!(std::fs::read_to_string(place.join("deep/colour")).unwrap(), "red");
    assert_eq!(std::fs::metadata(place.join("deep/colour")).unwrap().permissions().mode() & 0o777, 0o400);

    // Changes become visible atomically without a restart, except in a subPath mount.
    let patch = json!({"data": {"colour": "blue", "shape": null, "size": "big"}}).to_string().replace(' ', "");
    kubectl.run(&format!("patch configmap settings --type=merge -p {patch}")).await;
    kubectl.run("label pod gathered tier=back --overwrite").await;
    let seen = |line: &'static str, wanted: &'static str| async move {
        let read = || async { (exec(line).await == wanted).then_some(()) };
        eventually(&format!("{line} is {wanted}"), read).await;
    };
    seen("ls /plain", "colour\nraw\nsize\n").await;
    seen("cat /all/deep/colour", "blue").await;
    seen("cat /all/labels", "app=\"web\"\ntier=\"back\"").await;
    assert_eq!(exec("cat /etc/just-one").await, "red");
    assert_eq!(exec("cat /all/vault/token").await, token, "it is good for most of an hour");
    cluster.shut_down().await;
}

#[tokio::test]
async fn a_pod_waits_for_missing_volume_sources_and_reports_them() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    let with = |name: &str, sources: &str, more: &str| {
        pod(name, &format!("volumes: [{{name: all, projected: {{sources: [{sources}]}}}}],{more}"), SLEEP)
            .replace("image: any,", "image: any, volumeMounts: [{name: all, mountPath: /all}],")
    };
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: there}, data: {a: b}}").await;
    let cases = [
        ("map", "configMap: {name: late}", "", "configmap \"late\" not found"),
        (
            "both",
            "secret: {name: late}}, {configMap: {name: late}",
            "",
            "[secret \"late\" not found, configmap \"late\" not found]",
        ),
        (
            "key",
            "configMap: {name: there, items: [{key: c, path: c}]}",
            "",
            "configmap references non-existent config key: c",
        ),
        (
            "account",
            "serviceAccountToken: {path: token}",
            "serviceAccountName: late,",
            "failed to fetch token: serviceaccounts \"late\" not found",
        ),
    ];
    for (name, sources, more, _) in &cases {
        cluster.apply(&with(name, &format!("{{{sources}}}"), more)).await;
    }
    for (name, _, _, words) in &cases {
        let message = format!("MountVolume.SetUp failed for volume \"all\" : {words}");
        cluster
            .wait_for_value(&format!("pod/{name}"), "{.status.containerStatuses[0].state.waiting.message}", &message)
            .await;
        cluster.wait_for_value(&format!("pod/{name}"), REASON, "ContainerCreating").await;
        assert_eq!(cluster.json(&format!("pod {name}")).await["status"]["phase"], "Pending");
        let about = format!(
            "get events --field-selector involvedObject.name={name},reason=FailedMount -o jsonpath={{..message}}"
        );
        let is_reported = || async { kubectl.run(&about).await.contains(&message).then_some(()) };
        eventually("an event names it", is_reported).await;
    }
    // No container starts before all volumes are ready.
    let first =
        with("ordered", "{configMap: {name: late}}", "initContainers: [{name: first, image: any, command: ['true']}],");
    cluster.apply(&first).await;
    let waiting = "{.status.initContainerStatuses[0].state.waiting.message}";
    cluster
        .wait_for_value(
            "pod/ordered",
            waiting,
            "MountVolume.SetUp failed for volume \"all\" : configmap \"late\" not found",
        )
        .await;

    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {a: b}}").await;
    cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: late}, data: {}}").await;
    cluster.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: late}}").await;
    kubectl.run("patch configmap there --type=merge -p {\"data\":{\"c\":\"d\"}}").await;
    kubectl.run("wait --for=condition=Ready pod/map pod/both pod/key pod/account pod/ordered --timeout=60s").await;
    cluster.shut_down().await;
}

#[tokio::test]
async fn unsupported_sources_and_paths_are_rejected_with_a_message() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: sly}, data: {../../escaped: x, good: y}}").await;
    let directory = cluster.embedded.directory.path();
    let outside = directory.join("escaped").display().to_string();
    let absolute = format!("configMap: {{name: sly, items: [{{key: good, path: {outside}}}]}}");
    let expected = format!("path \"{outside}\" must be inside the volume");
    let cases = [
        (
            "bundle",
            "projected: {sources: [{clusterTrustBundle: {name: x, path: x}}]}",
            "the embedded node does not support clusterTrustBundle sources",
        ),
        ("absolute", absolute.as_str(), expected.as_str()),
        (
            "upwards",
            "configMap: {name: sly, items: [{key: good, path: ../escaped}]}",
            "path \"../escaped\" must be inside the volume",
        ),
        ("sly", "configMap: {name: sly}", "path \"../../escaped\" must be inside the volume"),
        ("mode", "configMap: {name: sly, defaultMode: 2541}", "mode 2541 is not between 0 and 0777"),
        (
            "field",
            "downwardAPI: {items: [{path: x, fieldRef: {fieldPath: spec.nodeName}}]}",
            "fieldPath \"spec.nodeName\" is not supported in volumes",
        ),
        (
            "resource",
            "downwardAPI: {items: [{path: x, resourceFieldRef: {containerName: main, resource: limits.gpu}}]}",
            "resource \"limits.gpu\" is not supported",
        ),
        (
            "container",
            "downwardAPI: {items: [{path: x, resourceFieldRef: {containerName: other, resource: limits.cpu}}]}",
            "container \"other\" not found",
        ),
        (
            "short",
            "projected: {sources: [{serviceAccountToken: {path: x, expirationSeconds: 5}}]}",
            "expirationSeconds 5 is less than 10 minutes",
        ),
    ];
    for (name, volume, _) in &cases {
        let pod = pod(name, &format!("volumes: [{{name: v, {volume}}}],"), SLEEP)
            .replace("image: any,", "image: any, volumeMounts: [{name: v, mountPath: /v}],");
        cluster.apply(&pod).await;
    }
    for (name, _, words) in &cases {
        cluster.wait_for_value(&format!("pod/{name}"), REASON, "CreateContainerError").await;
        let shown = cluster.json(&format!("pod {name}")).await;
        let message =
            shown["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("volume v: ") && message.contains(words), "{name}: {message}");
    }
    let found = std::process::Command::new("find").arg(directory).args(["-name", "escaped"]).output().unwrap();
    assert_eq!(text(&found.stdout), "");
    cluster.shut_down().await;
}
