//! The errors of wrong input, of objects that do not exist and of servers that do not answer.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::bed::{Bed, plimsoll};

/// Arguments that are wrong for every cluster.
const USAGE: &[&str] = &[
    "backup create",
    "backup create x --ttl soon",
    "backup create x --ttl=-1h",
    "backup create x -l 'a in (b'",
    "backup create x --or-selector 'a=b or ='",
    "backup create x --labels nonsense",
    "backup create x --ordered-resources nonsense",
    "backup create x --wait -o json",
    "backup create x --include-resources a --include-cluster-scoped-resources b",
    "schedule create s",
    "schedule create s --schedule 'every day'",
    "schedule create s --schedule '61 * * * *' -o yaml",
    "schedule create s --schedule @fortnightly",
    "schedule create s --schedule 'TZ=Nowhere/City 0 1 * * *'",
    "create schedule s --schedule '@every never'",
    "restore create r",
    "restore create r --from-backup a --namespace-mappings nonsense",
    "restore create r --from-backup a --existing-resource-policy replace",
    "backup-location create l --provider aws --bucket b --credential nonsense",
    "backup-location create l --provider aws --bucket b --access-mode Never",
    "backup-location set l",
    "snapshot-location create l --provider aws --config nonsense",
    "describe pod/x",
    "describe backup/",
    "describe operation x",
    "get backup/a restore/b",
    "get backups a -l b=c",
    "logs backup",
    "logs schedule/x",
    "cancel nightly",
    "cancel schedule/x",
    "delete backup",
    "delete operation/x",
    "schedule pause",
    "action create --blueprint b --deployment ns/d",
    "action create --action a --deployment ns/d",
    "action create --action a --blueprint b",
    "action create --action a --blueprint b --deployment d",
    "action create --action a --blueprint b --objects d",
    "action create --action a --blueprint b --kind pod -l a=b",
    "why nightly",
    "watch pod/x",
    "top -o xml",
    "install --server-cpu-request much",
    "install --bucket b",
    "install --provider aws --bucket b",
    "install --provider aws --bucket b --no-secret --location-volume nonsense",
    "install --provider aws --bucket b --no-secret --location-volume pvc:b",
    "install --no-default-backup-location --use-node-agent=false --default-volumes-to-fs-backup",
    "agent --node a --cache-limit much",
    "server --uploader-type magic",
    "server --agent-heartbeat-timeout soon",
    "local --listen 0.0.0.0:0",
    "ui --listen 0.0.0.0:0",
    "kando location push -",
    "kando location push - --path a",
    "kando chronicle a",
    "blueprint validate nonexistent.yaml",
    "frobnicate",
];

/// What the API server answers.
const OBJECTS: &[&str] = &[
    "backup create UPPER",
    "backup create a/b",
    "backup create taken",
    "backup create x -n missing",
    "backup create x --from-schedule none",
    "backup create taken --from-schedule daily --ttl 1h",
    "backup create x --resource-policies-configmap none --dry-run",
    "backup get none",
    "backup get -l 'a in (b'",
    "backup describe none",
    "backup logs none",
    "backup logs taken",
    "backup download none",
    "backup delete none --confirm",
    "backup delete taken",
    "restore create --from-schedule daily --dry-run",
    "restore create UPPER --from-backup taken",
    "restore create x --from-backup none",
    "schedule create UPPER --schedule @daily",
    "schedule create daily --schedule @daily",
    "schedule pause none",
    "backup-location create UPPER --provider aws --bucket b",
    "backup-location set none --default",
    "snapshot-location create UPPER --provider aws",
    "snapshot-location get none",
    "snapshot-location set none --credential a=b",
    "cancel backup/none",
    "cancel backup/taken",
    "action watch none",
    "action logs none",
    "action create --from none",
    "action create --action a --blueprint none --deployment ns/d",
    "repo get none",
    "repo unlock none",
    "volume describe none",
    "plugin add example/plugin:1",
    "plugin remove example/plugin:1",
    "why backup/none",
    "watch backup/none",
    "version --timeout 1s",
];

#[tokio::test(flavor = "multi_thread")]
async fn errors_read_as_reviewed() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let schedule = json!({ "schedule": "@daily", "template": {} });
    for (kind, name, spec) in [("Backup", "taken", json!({})), ("Schedule", "daily", schedule)] {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        home.create(object).await.unwrap();
    }
    let mut table = Table::default();
    for line in USAGE {
        table.add(line, line, &[], &[]).await;
    }
    let kubeconfig = bed.kubeconfig.display().to_string();
    for line in OBJECTS {
        let namespace: &[&str] = if line.contains(" -n ") { &[] } else { &["-n", "home"] };
        table.add(line, line, namespace, &[("KUBECONFIG", &kubeconfig)]).await;
    }
    connections(&mut table, bed.directory.path(), &kubeconfig).await;
    answers(&mut table, bed.directory.path()).await;
    let text = table.0.replace(&bed.directory.path().display().to_string(), "[DIR]");
    assert!(!text.contains("Status {") && !text.contains("Error {"), "the Debug form of an error:\n{text}");
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!("errors", text) });
}

/// What is shown of a command, its further arguments, and its environment.
type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);

/// Clusters that cannot be found or reached.
async fn connections(table: &mut Table, directory: &Path, kubeconfig: &str) {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let broken = file("broken", "clusters: [");
    let unreachable = file("unreachable", &kubeconfig_for("http://127.0.0.1:1"));
    let cases: [Case<'_>; 5] = [
        ("backup get                                  # no kubeconfig", &[], &[]),
        ("backup get --kubeconfig /nonexistent", &[], &[]),
        ("backup get --kubeconfig broken", &["--kubeconfig", &broken], &[]),
        ("backup get --context none", &[], &[("KUBECONFIG", kubeconfig)]),
        ("backup get --kubeconfig unreachable", &["--kubeconfig", &unreachable], &[]),
    ];
    for (shown, more, environment) in cases {
        let line = shown.split('#').next().unwrap();
        let line = if more.is_empty() { line } else { "backup get" };
        table.add(shown, line, more, environment).await;
    }
}

/// Answers that the embedded cluster does not give.
async fn answers(table: &mut Table, directory: &Path) {
    let status = |code: u16, reason: &str, message: &str| {
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message })
            .to_string()
    };
    let forbidden = "backups.velero.io is forbidden: User \"reader\" cannot list resource \"backups\" in API group \
        \"velero.io\" in the namespace \"home\"";
    let cases = [
        ("forbidden", 403, status(403, "Forbidden", forbidden)),
        ("not logged in", 401, status(401, "Unauthorized", "Unauthorized")),
        ("too many requests", 429, status(429, "TooManyRequests", "storage is (re)initializing")),
        ("not an API server", 500, "<html>no</html>".to_owned()),
    ];
    for (name, code, body) in cases {
        let kubeconfig = directory.join("fixed-answer");
        std::fs::write(&kubeconfig, kubeconfig_for(&fixed_answer(code, body).await)).unwrap();
        let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for line in ["backup get", "backup create x --dry-run", "crds apply"] {
            table.add(&format!("{line:27} # {name}"), line, &["-n", "home"], &environment).await;
        }
    }
}

fn kubeconfig_for(server: &str) -> String {
    let config: Value = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server } }], "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }] });
    config.to_string()
}

/// A server that answers every request the same. Returns its URL.
async fn fixed_answer(code: u16, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let head = format!("HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:");
    let answer = format!("{head} {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !is_whole(&request) && connection.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                let _ = connection.write_all(answer.as_bytes()).await;
                let _ = connection.shutdown().await;
            });
        }
    });
    url
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// Command lines with their exit codes and what they print to standard error.
#[derive(Default)]
struct Table(String);

impl Table {
    async fn add(&mut self, shown: &str, line: &str, more: &[&str], environment: &[(&str, &str)]) {
        let mut command: Command = plimsoll();
        command.env_clear().env("COLUMNS", "120").env("HOME", "/nonexistent").envs(environment.iter().copied());
        let Output { status, stderr, .. } = command.args(words(line)).args(more).output().await.unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        // The hint is the same for every usage error.
        let text = stderr.replace("\nFor more information, try '--help'.", "");
        let text: Vec<_> =
            text.trim().lines().map(|line| format!("    {}", line.trim_end()).trim_end().to_owned()).collect();
        let code = status.code().map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.0 += &format!("plimsoll {shown}\n  exit code {code}\n{}\n\n", text.join("\n"));
    }
}

/// The words of a command line, with single quotes.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    parts.collect()
}
