//! Tutorials and how-to pages work as they are written: their commands are run in their order by a shell.

use std::path::Path;
use std::process::Command;

use plimsoll_testkit::cache::system_program;
use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::peers::s3::{ACCESS_KEY, SECRET_KEY};
use plimsoll_testkit::{cache, require};

/// After this a reader looks whether the cluster has started.
const START: &str = "export KUBECONFIG=";
const WAIT: &str = "until plimsoll get backup-locations 2>/dev/null | grep -q Available; do sleep 0.2; done\n";
/// What the how-to pages expect: a cluster with an application.
const APPLICATION: &str = r"kubectl apply -f - <<'YAML'
---
{apiVersion: v1, kind: List, items: [
  {apiVersion: v1, kind: Namespace, metadata: {name: shop}},
  {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: b}}]}
YAML
";

/// The blocks of a page that are meant for a shell, in their order.
fn blocks(page: &str) -> String {
    let mut script = String::new();
    // The indentation of the block that a line is in: blocks in lists have one.
    let mut block = None;
    for line in page.lines() {
        match block {
            None => block = line.strip_suffix("```sh").filter(|indentation| indentation.trim().is_empty()),
            Some(_) if line.trim_start().starts_with("```") => block = None,
            Some(indentation) => {
                script.push_str(line.strip_prefix(indentation).unwrap_or(line));
                script.push('\n');
                if line.starts_with(START) {
                    script.push_str(WAIT);
                }
            }
        }
    }
    script
}

/// The commands of a page below `docs`.
fn read(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    blocks(&std::fs::read_to_string(page).unwrap())
}

/// Runs a script in a directory of its own and gives what it prints.
fn run(script: &str, kubectl: &Path, variables: &[(&str, &str)]) -> String {
    let script = format!("set -eu\ntrap 'kill $(jobs -p)' EXIT\n{script}");
    let directory = tempfile::tempdir().unwrap();
    let programs =
        [Path::new(env!("CARGO_BIN_EXE_plimsoll")), kubectl].map(|program| program.parent().unwrap().display());
    let search = format!("{}:{}:{}", programs[0], programs[1], std::env::var("PATH").unwrap());
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-c", &script]).current_dir(&directory).env("PATH", search);
    command.envs(variables.iter().copied());
    let output = command.env_remove("PLIMSOLL_NAMESPACE").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}\n{script}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Every one of these texts is printed, in this order.
fn assert_printed(text: &str, expected: &[&str]) {
    let mut rest = text;
    for seen in expected {
        let Some((_, after)) = rest.split_once(seen) else { panic!("{seen:?} is missing: {text}") };
        rest = after;
    }
}

#[test]
fn the_first_tutorial_runs_as_it_is_written() {
    let text = run(&read("tutorials/first-backup.md"), &require!(cache::program("kubectl")), &[]);
    assert_printed(&text, &["2 of 2 items backed up", "2 of 2 items restored", "a: b", "daily"]);
}

#[test]
fn the_tutorial_about_a_lost_cluster_runs_as_it_is_written() {
    let text = run(&read("tutorials/recover-a-lost-cluster.md"), &require!(cache::program("kubectl")), &[]);
    assert_printed(&text, &["2 of 2 items backed up", "2 of 2 items restored", "a: b"]);
}

#[test]
fn the_tutorial_about_a_database_runs_as_it_is_written() {
    let kubectl = require!(cache::program("kubectl"));
    require!(cache::program("versitygw").and(system_program("sqlite3")));
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let bucket = s3.create_bucket("dumps").unwrap();
    let variables =
        [("ENDPOINT", s3.endpoint()), ("BUCKET", "dumps"), ("KEY_ID", ACCESS_KEY), ("SECRET_KEY", SECRET_KEY)];
    let text = run(&read("tutorials/protect-a-database.md"), &kubectl, &variables);
    assert_printed(&text, &["cake", "shop/", ".sql.gz", "2 orders"]);
    let left = std::fs::read_dir(bucket.join("shop")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "the dump was not deleted");
}

#[test]
fn a_migration_runs_as_it_is_written() {
    let kubectl = require!(cache::program("kubectl"));
    let page = read("how-to/migrate.md");
    let bucket = "--provider aws --bucket backups --config region=eu-central-1";
    assert!(page.contains(bucket), "{page}");
    let page = page.replace(bucket, "--provider directory --bucket \"$PWD/bucket\"");
    let setup = format!(
        "mkdir bucket\nplimsoll local --data-dir ./old &\nplimsoll local --data-dir ./new &\n\
         export KUBECONFIG=$PWD/new/kubeconfig\n{WAIT}export KUBECONFIG=$PWD/old/kubeconfig\n{WAIT}\
         plimsoll backup-location create shared --provider directory --bucket \"$PWD/bucket\" --default\n{APPLICATION}\
         cp old/kubeconfig old.yaml\ncp new/kubeconfig new.yaml\nunset KUBECONFIG\n"
    );
    let text = run(&(setup + &page), &kubectl, &[]);
    assert_printed(&text, &["2 of 2 items backed up", "2 of 2 items restored", "configmap/settings"]);
}

#[test]
fn an_object_and_a_file_are_restored_as_it_is_written() {
    let kubectl = require!(cache::program("kubectl"));
    let setup = format!(
        "plimsoll local --data-dir ./cluster --run-pods &\nexport KUBECONFIG=$PWD/cluster/kubeconfig\n{WAIT}{APPLICATION}{DATABASE}\
         until kubectl -n shop exec database -- test -s /data/orders.csv; do sleep 0.2; done\n\
         plimsoll backup create nightly --include-namespaces shop --default-volumes-to-fs-backup --wait\n"
    );
    // What the page says of restic's program, in the place of an S3 address.
    let restic = if system_program("restic").is_ok() {
        "snapshot=$(kubectl -n velero get podvolumebackups -o jsonpath='{.items[0].status.snapshotID}')\n\
         repository=$(dirname $(find . -path '*/restic/shop/config'))\n\
         restic --repo $repository --password-file password restore $snapshot --include /orders.csv --target ./restored\n\
         cmp orders.csv restored/orders.csv\n"
    } else {
        ""
    };
    let text = run(&(setup + &read("how-to/restore-one-file.md") + restic), &kubectl, &[]);
    assert_printed(&text, &["a: b", "\"a\":\"b\"", "UPLOADER", "restic"]);
}

/// A pod with a file in a claim.
const DATABASE: &str = r#"kubectl apply -f - <<'YAML'
---
{apiVersion: v1, kind: List, items: [
  {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop},
   spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}},
  {apiVersion: v1, kind: Pod, metadata: {name: database, namespace: shop}, spec: {
    volumes: [{name: data, persistentVolumeClaim: {claimName: data}}],
    containers: [{name: database, image: any, volumeMounts: [{name: data, mountPath: /data}],
      command: [bash, -c, "[ -e /data/orders.csv ] || echo tea,1 > /data/orders.csv; exec sleep infinity"]}]}}]}
YAML
"#;
