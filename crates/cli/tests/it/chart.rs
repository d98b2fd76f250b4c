//! The Helm chart, with the real Helm: it renders what `plimsoll install` renders, and every value of Velero's chart is honoured,
//! refused or reported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_testkit::{cache, require};
use serde_json::{Map, Value, json};

type Objects = BTreeMap<(String, String), Value>;

/// What the chart and `plimsoll install` do not share.
///
/// - Helm creates the namespace of a release before it reads the chart.
/// - The network policies and probes are the chart's own, as long as `plimsoll install` has none.
const INSTALL_ONLY: [&str; 1] = ["Namespace"];
const CHART_ONLY_KINDS: [&str; 1] = ["NetworkPolicy"];
const CHART_ONLY_FIELDS: [&str; 2] = ["livenessProbe", "readinessProbe"];

/// Honoured by other means than their own text: the probes of Velero's values go to `/healthz`.
const REPLACED_TEXTS: [&str; 2] = ["/metrics", "http-monitoring"];

/// Values that are on or off, or exclude others: what they add to the rendered objects, and what they remove.
const SWITCHES: &[(&str, &str, &str)] = &[
    ("image.digest=sha256:1", "plimsoll@sha256:1", "image: plimsoll:"),
    ("nameOverride=other", "name: tests-other-s", "name: tests-velero-s"),
    ("fullnameOverride=other", "name: other-s", "name: tests-velero-s"),
    ("configuration.defaultBackupStorageLocation=offsite", "default: true", ""),
    ("configuration.backupStorageLocation[0].default=true", "default: true", ""),
    ("configuration.defaultVolumesToFsBackup=true", "--default-volumes-to-fs-backup=true", ""),
    ("configuration.defaultSnapshotMoveData=true", "--default-snapshot-move-data=true", ""),
    ("configuration.restoreOnlyMode=true", "--restore-only=true", ""),
    ("backupsEnabled=false", "", "kind: BackupStorageLocation"),
    ("snapshotsEnabled=false", "", "kind: VolumeSnapshotLocation"),
    ("deployNodeAgent=false", "", "plimsoll-agent"),
    ("nodeAgent.useScratchEmptyDir=false", "", "name: host-pods\n        - mountPath: /scratch"),
    ("rbac.create=false", "", "kind: Role\n"),
    ("rbac.clusterAdministrator=false", "", "name: plimsoll-velero"),
    ("serviceAccount.server.create=false", "serviceAccountName: default", "kind: ServiceAccount\nmetadata:\n  labels"),
    ("serviceAccount.server.automountServiceAccountToken=false", "automountServiceAccountToken: false", ""),
    ("credentials.useSecret=false", "", "kind: Secret"),
    ("credentials.existingSecret=mine", "name: mine", "kind: Secret"),
    ("podDisruptionBudget.maxUnavailable=1", "maxUnavailable: 1", "minAvailable"),
    ("metrics.enabled=false", "", "prometheus.io/scrape"),
    ("networkPolicy.enabled=false", "", "kind: NetworkPolicy"),
    ("upgradeCRDs=false", "", "kind: Job"),
    ("upgradeCRDsJob.automountServiceAccountToken=false", "automountServiceAccountToken: false", ""),
    ("kubectl.resources.requests.cpu=77m", "cpu: 77m", ""),
    ("schedules.s.disabled=true", "", "kind: Schedule"),
    ("schedules.s.paused=true", "paused: true", ""),
    ("schedules.s.useOwnerReferencesInBackup=true", "useOwnerReferencesInBackup: true", ""),
    ("schedules.s.skipImmediately=true", "skipImmediately: true", ""),
];

/// Values that every switch is tried with.
const SWITCHED: [&str; 8] = [
    "configuration.backupStorageLocation[0].provider=aws",
    "configuration.backupStorageLocation[0].bucket=backups",
    "configuration.backupStorageLocation[0].name=offsite",
    "configuration.volumeSnapshotLocation[0].provider=aws",
    "credentials.secretContents.cloud=keys",
    "podDisruptionBudget.enabled=true",
    "schedules.s.schedule=@daily",
    "global.team=backups",
];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/charts/plimsoll").canonicalize().unwrap()
}

fn values(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/chart").join(name)
}

fn read_yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs Helm for the release `tests`, away from the configuration of this machine's user.
fn helm(program: &Path, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", home.path()).env("HELM_NAMESPACE", "velero");
    command.output().unwrap()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is rendered, without the definitions.
fn render(program: &Path, arguments: &[&str]) -> String {
    let chart = chart();
    let output = helm(program, &[&["template", "tests", chart.to_str().unwrap()], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text_of(&output.stderr));
    text_of(&output.stdout)
}

fn by_name(objects: Vec<Value>) -> Objects {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    objects.into_iter().map(|object| ((text(&object, "/kind"), text(&object, "/metadata/name")), object)).collect()
}

fn rendered(program: &Path, arguments: &[&str]) -> Objects {
    let text = render(program, &[arguments, &["--no-hooks", "--include-crds"]].concat());
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    by_name(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn installed(arguments: &[&str]) -> Objects {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.args(["install", "--dry-run", "-o", "json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    by_name(list["items"].as_array().unwrap().clone())
}

/// Removes what only the chart has, where `plimsoll install` has nothing in its place.
fn remove_chart_only(chart: &mut Objects, install: &Objects) {
    chart.retain(|name, _| !CHART_ONLY_KINDS.contains(&name.0.as_str()) || install.contains_key(name));
    for (name, object) in chart {
        let pointer = "/spec/template/spec/containers/0";
        let ours = install.get(name).and_then(|object| object.pointer(pointer));
        let container = object.pointer_mut(pointer).and_then(Value::as_object_mut);
        let (Some(container), Some(ours)) = (container, ours) else { continue };
        container.retain(|field, _| !CHART_ONLY_FIELDS.contains(&field.as_str()) || ours.get(field).is_some());
    }
}

fn assert_same(mut chart: Objects, mut install: Objects) {
    remove_chart_only(&mut chart, &install);
    install.retain(|(kind, _), _| !INSTALL_ONLY.contains(&kind.as_str()));
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&chart), names(&install));
    for (name, object) in &chart {
        assert_eq!(object, &install[name], "{name:?}");
    }
}

#[test]
fn helm_accepts_the_chart() {
    let program = require!(cache::program("helm"));
    let output = helm(&program, &["lint", "--strict", chart().to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", text_of(&output.stdout), text_of(&output.stderr));
}

#[test]
fn the_chart_has_the_version_of_the_binary() {
    let chart = read_yaml(&chart().join("Chart.yaml"));
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(env!("CARGO_PKG_VERSION")), &chart["version"]));
}

#[test]
fn the_chart_renders_what_install_renders() {
    let program = require!(cache::program("helm"));
    assert_same(rendered(&program, &[]), installed(&[]));
}

#[test]
fn the_chart_renders_what_install_renders_with_the_same_options() {
    let program = require!(cache::program("helm"));
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "keys").unwrap();
    let keys = keys.path().to_str().unwrap();
    let install = installed(&[
        "--image=registry.example/plimsoll:1",
        "--image-pull-policy=Always",
        "--replicas=2",
        "--provider=directory",
        "--bucket=/backups",
        "--prefix=cluster",
        "--location-volume=nfs:nas.example:/export/backups",
        "--secret-file",
        keys,
        "--uploader-type=kopia",
        "--default-volumes-to-fs-backup",
        "--server-argument=--concurrency=2",
        "--agent-argument=--concurrency=2",
        "--sa-annotations=role=backups",
        "--server-cpu-request=200m",
        "--server-mem-request=256Mi",
        "--agent-cpu-request=50m",
        "--pod-annotations=a=b",
        "--pod-labels=c=d",
        "--kubelet-root-dir=/kubelet",
        "--privileged-node-agent",
    ]);
    assert_same(rendered(&program, &["--values", values("installed.yaml").to_str().unwrap()]), install);
}

#[tokio::test]
async fn the_generated_files_of_the_chart_are_up_to_date() {
    let run = async |arguments: &[&str]| {
        let output = crate::bed::plimsoll().args(arguments).env_remove("PLIMSOLL_NAMESPACE").output().await.unwrap();
        text_of(&output.stdout)
    };
    let file = |name: &str| std::fs::read_to_string(chart().join("files").join(name)).unwrap();
    let fresh =
        ["install", "--dry-run", "--no-crds", "-o", "yaml", "-n", "release-namespace", "--image", "release-image"];
    assert!(run(&fresh).await == file("objects.yaml"), "run `make generate`");
    let flags: BTreeMap<String, Vec<String>> = serde_saphyr::from_str(&file("flags.yaml")).unwrap();
    for (program, flags) in flags {
        let help = run(&[&program, "--help"]).await;
        let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let fresh = options.filter_map(|line| line.split([' ', '[']).find(|word| word.starts_with("--")));
        assert_eq!(flags, fresh.collect::<Vec<_>>(), "{program}: run `make generate`");
    }
}

/// The paths of the texts and numbers in a value, and these. Elements of lists have the name `*`.
fn scalars(value: &Value, path: &str, into: &mut Vec<(String, String)>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| scalars(value, &below(name), into)),
        Value::Array(list) => list.iter().for_each(|value| scalars(value, &below("*"), into)),
        Value::String(text) => into.push((path.to_owned(), text.clone())),
        other => into.push((path.to_owned(), other.to_string())),
    }
}

fn scalars_of(file: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    scalars(&read_yaml(&values(file)), "", &mut found);
    found
}

#[test]
fn honoured_values_are_in_the_rendered_objects() {
    let program = require!(cache::program("helm"));
    let text = render(&program, &["--values", values("honoured.yaml").to_str().unwrap(), "--is-upgrade"]);
    let is_rendered = |value: &str| text.contains(value) || text.contains(&BASE64_STANDARD.encode(value));
    let missing: Vec<_> = scalars_of("honoured.yaml")
        .into_iter()
        .filter(|(_, value)| !is_rendered(value) && !REPLACED_TEXTS.contains(&value.as_str()))
        .filter(|(_, value)| value != "true" && value != "false")
        .collect();
    assert!(missing.is_empty(), "{missing:#?}\n{text}");
    assert!(!text.contains("http-monitoring"), "a port that the pods do not have");
    // The agents are told apart from the server by their account.
    assert!(text.contains("serviceAccountName: agent-account"), "{text}");
}

#[test]
fn switches_add_and_remove_objects_and_fields() {
    let program = require!(cache::program("helm"));
    let render_with = |values: &[&str]| {
        let arguments: Vec<&str> = values.iter().flat_map(|value| ["--set", *value]).chain(["--is-upgrade"]).collect();
        render(&program, &arguments)
    };
    let before = render_with(&SWITCHED);
    for (switch, added, removed) in SWITCHES {
        let after = render_with(&[&SWITCHED[..], &[*switch]].concat());
        let is_added = added.is_empty() || (after.contains(added) && !before.contains(added));
        let is_removed = removed.is_empty() || (before.contains(removed) && !after.contains(removed));
        assert!(is_added && is_removed, "{switch} does not add {added:?} and remove {removed:?}:\n{before}\n{after}");
    }
}

/// Whether a message names a value or what it is a part of, not only the first part of its name.
fn is_named(message: &str, path: &str) -> bool {
    let mut name = path.replace(".*", "");
    while !message.contains(&format!("{name}:")) && !message.contains(&format!("({name})")) {
        let Some(end_of_parent) = name.rfind('.') else { return false };
        name.truncate(end_of_parent);
    }
    true
}

#[test]
fn refused_values_are_all_named_in_one_message() {
    let program = require!(cache::program("helm"));
    let chart = chart();
    let file = values("refused.yaml");
    let output = helm(&program, &["template", "tests", chart.to_str().unwrap(), "--values", file.to_str().unwrap()]);
    let message = text_of(&output.stderr);
    assert!(!output.status.success());
    let silent: Vec<_> = scalars_of("refused.yaml").into_iter().filter(|(path, _)| !is_named(&message, path)).collect();
    // It is what the refusal of another value is about.
    let silent: Vec<_> = silent.into_iter().filter(|(path, _)| path != "deployNodeAgent").collect();
    assert!(silent.is_empty(), "{silent:#?}\n{message}");
    let root = ["--set", "nodeAgent.podSecurityContext.runAsUser=1000"];
    let output = helm(&program, &[&["template", "tests", chart.to_str().unwrap()], &root[..]].concat());
    assert!(text_of(&output.stderr).contains("nodeAgent.podSecurityContext.runAsUser:"), "{output:?}");
    let unknown = helm(&program, &["template", "tests", chart.to_str().unwrap(), "--set", "replica=2"]);
    assert!(!unknown.status.success() && text_of(&unknown.stderr).contains("replica"), "{unknown:?}");
}

#[test]
fn values_without_effect_are_reported_after_an_installation() {
    let program = require!(cache::program("helm"));
    let (chart, file) = (chart(), values("unused.yaml"));
    let notes = |arguments: &[&str]| {
        let dry_run = ["install", "tests", chart.to_str().unwrap(), "--dry-run=client", "--hide-secret"];
        let output = helm(&program, &[&dry_run, arguments].concat());
        assert!(output.status.success(), "{}", text_of(&output.stderr));
        text_of(&output.stdout).split_once("NOTES:").unwrap().1.to_owned()
    };
    let text = notes(&["--values", file.to_str().unwrap()]);
    let silent: Vec<_> = scalars_of("unused.yaml").into_iter().filter(|(path, _)| !is_named(&text, path)).collect();
    assert!(silent.is_empty(), "{silent:#?}\n{text}");
    assert!(!notes(&[]).contains("no effect"), "the defaults have an effect");
}

/// `helm upgrade --reuse-values` takes the values of the chart before, here Velero's: those that only this chart has are absent.
#[test]
fn the_chart_works_without_the_values_that_only_it_has() {
    let program = require!(cache::program("helm"));
    let own = [
        "replicas",
        "priorityClass",
        "networkPolicy",
        "metrics.podMonitor",
        "metrics.dashboard",
        "serviceAccount.agent",
    ];
    let own = own.map(|name| format!("{name}=null"));
    let arguments: Vec<&str> = own.iter().flat_map(|value| ["--set", value.as_str()]).collect();
    assert_same(rendered(&program, &arguments), installed(&[]));
    let velero = values("velero.yaml");
    let image = ["--set-string", "image.repository=registry.example/plimsoll,image.tag=1"];
    let velero = [&["--values", velero.to_str().unwrap()], &image[..], &arguments].concat();
    let mut objects = rendered(&program, &velero);
    let names: Vec<_> = objects.keys().filter(|(kind, _)| kind == "Schedule").map(|(_, name)| name.clone()).collect();
    assert_eq!(names, ["tests-velero-daily"]);
    let server = objects.remove(&("Deployment".into(), "plimsoll".into())).unwrap();
    let container = &server["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["readinessProbe"]["httpGet"], json!({ "path": "/healthz", "port": "dashboard" }));
    assert_eq!(server["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"], "8086");
}

/// The paths that the schema names. Free maps are not entered.
fn schema_paths(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    properties.iter().for_each(|(name, schema)| schema_paths(schema, &below(name), into));
    let nested = ["items", "additionalProperties"].map(|key| &schema[key]);
    let nested = nested.into_iter().find(|nested| nested["properties"].is_object());
    match nested {
        Some(nested) => schema_paths(nested, &below("*"), into),
        None if properties.is_empty() => drop(into.insert(path.to_owned())),
        None => {}
    }
}

#[test]
fn every_value_of_the_schema_is_tested() {
    let mut named = BTreeSet::new();
    let schema: Value = serde_json::from_slice(&std::fs::read(chart().join("values.schema.json")).unwrap()).unwrap();
    schema_paths(&schema, "", &mut named);
    let mut tested = vec!["nodeAgent.podSecurityContext.runAsUser".to_owned()];
    for file in ["honoured.yaml", "refused.yaml", "unused.yaml"] {
        tested.extend(scalars_of(file).into_iter().map(|(path, _)| path));
        collect_empty(&read_yaml(&values(file)), "", &mut tested);
    }
    let switches = SWITCHES.iter().map(|(switch, ..)| *switch).chain(SWITCHED);
    tested.extend(switches.map(|switch| switch.split('=').next().unwrap().replace("[0]", ".*")));
    // The names of schedules and ConfigMaps are the user's.
    let names = [
        ("schedules.schedule-name", "schedules.*"),
        ("schedules.s.", "schedules.*."),
        ("configMaps.map-name", "configMaps.*"),
    ];
    for path in &mut tested {
        for (name, pattern) in names {
            *path = path.replacen(name, pattern, 1);
        }
    }
    let is_tested = |path: &String| tested.iter().any(|one| one == path || one.starts_with(&format!("{path}.")));
    let forgotten: Vec<_> = named.iter().filter(|path| !is_tested(path)).collect();
    assert!(forgotten.is_empty(), "neither honoured nor refused nor reported in a test: {forgotten:#?}");
    assert!(named.len() > 200, "{}", json!(named));
}

/// Empty lists and maps have no scalars, and are values all the same.
fn collect_empty(value: &Value, path: &str, into: &mut Vec<String>) {
    let Value::Object(map) = value else { return };
    for (name, value) in map {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if *value == json!({}) || *value == json!([]) {
            into.push(path.clone());
        }
        collect_empty(value, &path, into);
    }
}
