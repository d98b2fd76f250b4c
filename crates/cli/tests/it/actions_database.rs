//! A real database, dumped through a pipe into object storage and back, as most real blueprints do it.

use std::path::Path;

use plimsoll_testkit::cache::system_program;
use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::require;
use serde_json::{Value, json};

use crate::actions::{act, claim, make, profile, shell, volume_of};
use crate::bed::{Bed, Home, eventually};

const SOCKET: &str = "/db/mysqld.sock";
const PASSWORD: &str = "open sesame";

/// A server of MariaDB in a StatefulSet, with its password in a Secret.
pub async fn database(home: &Home<'_>, image: &str) {
    make(home, "Secret", "mysql", json!({ "stringData": { "mysql-root-password": PASSWORD } })).await;
    // One statement on a line: that is all such a file may have.
    let first = "CREATE DATABASE IF NOT EXISTS shop;";
    let second = format!("ALTER USER root@localhost IDENTIFIED BY '{PASSWORD}';");
    let line = format!(
        "printf '%s\\n' \"{first}\" \"{second}\" > /db/init.sql && {{ [ -d /db/data/mysql ] || mariadb-install-db --no-defaults --user=root \
         --datadir=/db/data --auth-root-authentication-method=normal >/dev/null; }} && \
         exec mariadbd --no-defaults --user=root --datadir=/db/data --socket={SOCKET} --skip-networking \
         --innodb-use-native-aio=0 --init-file=/db/init.sql --pid-file=/db/pid"
    );
    make(
        home,
        "StatefulSet",
        "mysql",
        json!({ "metadata": { "name": "mysql", "labels": { "app.kubernetes.io/instance": "mysql" } },
        "spec": { "replicas": 1, "serviceName": "mysql", "selector": { "matchLabels": { "app": "mysql" } },
        "template": { "metadata": { "labels": { "app": "mysql" } }, "spec": {
            "volumes": [{ "name": "db", "persistentVolumeClaim": { "claimName": "mysql" } }],
            "containers": [{ "name": "mysql", "image": image, "command": shell(&line),
                "volumeMounts": [{ "name": "db", "mountPath": "/db" }] }] } } } }),
    )
    .await;
}

/// The shape of Kanister's own for MySQL; the server is reached through its socket, because these clusters have no DNS.
pub fn blueprint(image: &str) -> Value {
    let pod = json!({
        "volumes": [{ "name": "db", "persistentVolumeClaim": { "claimName": "mysql" } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "db", "mountPath": "/db" }] }],
    });
    let task = |name: &str, objects: bool, line: &str| {
        let mut phase = json!({ "func": "KubeTask", "name": name, "args": { "image": image, "namespace": "{{ .StatefulSet.Namespace }}",
            "podOverride": pod, "command": ["bash", "-o", "errexit", "-o", "pipefail", "-c", line] } });
        if objects {
            phase["objects"] = json!({ "mysqlSecret": { "kind": "Secret", "namespace": "{{ .StatefulSet.Namespace }}",
                "name": "{{ index .Object.metadata.labels \"app.kubernetes.io/instance\" }}" } });
        }
        phase
    };
    let password = |phase: &str| {
        format!(
            "root_password=\"{{{{ index .Phases.{phase}.Secrets.mysqlSecret.Data \"mysql-root-password\" | toString }}}}\""
        )
    };
    let dump = format!(
        "s3_path=\"/mysql-backups/{{{{ .StatefulSet.Namespace }}}}/{{{{ toDate \"2006-01-02T15:04:05.999999999Z07:00\" .Time | date \"2006-01-02T15-04-05\" }}}}/dump.sql.gz\"\n{}\nmysqldump --no-defaults --socket={SOCKET} -u root --password=\"${{root_password}}\" --single-transaction --databases shop | gzip - | kando location push --profile '{{{{ toJson .Profile }}}}' --path ${{s3_path}} -\nkando output s3path ${{s3_path}}",
        password("dumpToObjectStore")
    );
    let load = format!(
        "s3_path=\"{{{{ .ArtifactsIn.mysqlCloudDump.KeyValue.s3path }}}}\"\n{}\nkando location pull --profile '{{{{ toJson .Profile }}}}' --path ${{s3_path}} - | gunzip | mariadb --no-defaults --socket={SOCKET} -u root --password=\"${{root_password}}\"",
        password("restoreFromBlobStore")
    );
    let delete = "s3_path=\"{{ .ArtifactsIn.mysqlCloudDump.KeyValue.s3path }}\"\nkando location delete --profile '{{ toJson .Profile }}' --path ${s3_path}";
    json!({ "actions": {
        "backup": {
            "outputArtifacts": { "mysqlCloudDump": { "keyValue": { "s3path": "{{ .Phases.dumpToObjectStore.Output.s3path }}" } } },
            "phases": [task("dumpToObjectStore", true, &dump)],
        },
        "restore": { "phases": [task("restoreFromBlobStore", true, &load)] },
        "delete": { "phases": [task("deleteFromBlobStore", false, delete)] },
    } })
}

/// What the database answers.
async fn ask(socket: &Path, question: &str) -> Result<String, String> {
    let mut command = tokio::process::Command::new("mariadb");
    command
        .args(["--no-defaults", "-u", "root", "-N", "-e", question])
        .arg(format!("--socket={}", socket.display()))
        .env("MYSQL_PWD", PASSWORD)
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Rows of the database whose files lie in `volume` are written, backed up, dropped, restored and compared.
pub async fn round_trip_rows(home: &Home<'_>, bucket: &Path, volume: &Path) {
    let socket = &volume.join("mysqld.sock");
    eventually("the database answers", async || ask(socket, "USE shop").await.is_ok()).await;
    let rows = "SELECT COUNT(*), SUM(n), MAX(LENGTH(t)), MD5(GROUP_CONCAT(t ORDER BY n)) FROM shop.rows";
    let fill = "CREATE TABLE shop.rows (n INT, t TEXT) ENGINE=InnoDB; \
        INSERT INTO shop.rows SELECT seq, REPEAT(MD5(seq), 20) FROM mysql.seq_1_to_5000";
    ask(socket, fill).await.unwrap_or_else(|error| panic!("{error}"));
    let before = ask(socket, rows).await.unwrap();
    assert!(before.starts_with("5000"), "{before}");

    let target = format!("{}/mysql", home.namespace);
    let backup =
        act(home, &["--action", "backup", "--blueprint", "mysql", "--statefulset", &target, "--profile", "s3"]).await;
    let phase = &backup["status"]["actions"][0]["phases"][0];
    let path = phase["output"]["s3path"].as_str().unwrap().to_owned();
    let dump = bucket.join(path.trim_start_matches('/'));
    let size = std::fs::metadata(&dump).unwrap().len();
    assert_eq!(phase["progress"]["sizeUploadedB"], size, "{phase:#}");
    let name = backup["metadata"]["name"].as_str().unwrap().to_owned();

    ask(socket, "DROP DATABASE shop").await.unwrap();
    let restore = act(home, &["--action", "restore", "--from", &name]).await;
    assert_eq!(ask(socket, rows).await.unwrap(), before);
    assert_eq!(restore["status"]["actions"][0]["phases"][0]["progress"]["sizeDownloadedB"], size);

    act(home, &["--action", "delete", "--from", &name]).await;
    assert!(!dump.exists());
    assert!(!home.log().contains(PASSWORD), "the password stands in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_restored_from_its_dump() {
    require!(system_program("mariadbd").and(system_program("mysqldump")));
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let bucket = s3.create_bucket("dumps").unwrap();
    let home = bed.home("home").await;
    let arguments = ["--lease-duration", "15s", "--tools-image", "plimsoll"];
    let _server = home.server_through(&bed.kubeconfig, &arguments, &[]);
    profile(&home, &s3, "dumps").await;
    claim(&home, "mysql").await;
    database(&home, "any").await;
    make(&home, "Blueprint", "mysql", blueprint("any")).await;
    let volume = volume_of(&home, "mysql").await;
    round_trip_rows(&home, &bucket, &volume).await;
}
