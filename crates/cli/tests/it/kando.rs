//! The commands inside the pods of a blueprint, as its shell lines call them.

use std::path::Path;
use std::process::Stdio;

use plimsoll_progress::Frame;
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::bed::plimsoll;

/// A pod's shell: `kando` is this program, `$PROFILE` the profile.
struct Shell {
    folder: tempfile::TempDir,
    profile: Value,
}

impl Shell {
    fn new(endpoint: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), folder.path().join("kando")).unwrap();
        let profile = json!({
            "Location": {"type": "s3Compliant", "bucket": "data", "endpoint": endpoint, "prefix": "pre", "region": "us-east-1"},
            "Credential": {"Type": "keyPair", "KeyPair": {"ID": ACCESS_KEY, "Secret": SECRET_KEY}},
            "SkipSSLVerify": false,
        });
        Self { folder, profile }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Exit code, standard output and standard error of a script.
    async fn run(&self, script: &str) -> (Option<i32>, Vec<u8>, String) {
        let path = format!("{}:{}", self.folder().display(), std::env::var("PATH").unwrap());
        let output = Command::new("bash")
            .args(["-o", "errexit", "-o", "pipefail", "-c", script])
            .env("PATH", path)
            .env("PROFILE", self.profile.to_string())
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    }
}

/// The frames of a log; nothing else may be in it.
fn frames(log: &str) -> Vec<Frame> {
    let frame = |line: &str| {
        let json = line.strip_prefix("###Phase-progress###: ").unwrap_or_else(|| panic!("not a frame: {line}"));
        Frame::from_line(json).unwrap()
    };
    log.lines().map(frame).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn data_passes_through_pipes_unchanged_and_progress_separately() {
    require!(cache::program("versitygw"));
    let server = S3Server::start("127.0.0.1").unwrap();
    let bucket = server.create_bucket("data").unwrap();
    let shell = Shell::new(server.endpoint());
    let push =
        r#"seq 1 2000000 | gzip -1 | tee sent | kando location push --profile "$PROFILE" --path /dumps/seq.gz -"#;
    let (code, out, log) = shell.run(push).await;
    assert_eq!((code, out.as_slice()), (Some(0), &b""[..]), "{log}");
    let sent = std::fs::read(shell.folder().join("sent")).unwrap();
    assert!(std::fs::read(bucket.join("pre/dumps/seq.gz")).unwrap() == sent, "another content");
    let last = frames(&log).pop().unwrap();
    assert_eq!((&*last.operation, last.nodes[0].meters[0].done), ("push dumps/seq.gz", sent.len() as u64));

    let pull = r#"kando location pull -p "$PROFILE" -s dumps/seq.gz - | tee got | gunzip | tail -n 1"#;
    let (code, out, log) = shell.run(pull).await;
    assert_eq!((code, out.as_slice()), (Some(0), &b"2000000\n"[..]), "{log}");
    assert!(std::fs::read(shell.folder().join("got")).unwrap() == sent, "another content");
    assert!(!frames(&log).is_empty() && !log.contains(SECRET_KEY));

    let files = r#"printf '%s' "$PROFILE" > profile
        kando location push --profile-path profile --path sent --output-name ignored sent
        head -c 40000000 /dev/zero > back
        kando location pull --profile-path profile --path sent back
        cmp sent back
        kando location delete --profile-path profile --path dumps
        kando output path '/dumps "x"'"#;
    let (code, out, log) = shell.run(files).await;
    assert_eq!(code, Some(0), "{log}");
    let output = r#"###Phase-output###: {"key":"path","value":"/dumps \"x\""}"#;
    assert_eq!(String::from_utf8(out).unwrap().trim_end(), output);
    assert!(!bucket.join("pre/dumps/seq.gz").exists() && bucket.join("pre/sent").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_kando_commands_are_refused_by_name() {
    let shell = Shell::new("http://127.0.0.1:1");
    let cases = [
        (r#"kando location pull -p "$PROFILE" -s a -k '{}' -"#, 1, "--kopia-snapshot"),
        (r#"kando location delete -p "$PROFILE" -s a -k '{}'"#, 1, "--kopia-snapshot"),
        ("kando chronicle push --profile-path x", 1, "kando chronicle"),
        ("kando stream push", 1, "kando stream"),
        ("kando process server", 1, "kando process"),
        (r#"kando location delete -p "$PROFILE""#, 2, "--path"),
        ("kando location delete -s a", 2, "--profile"),
        ("kando location delete -s a -p '{\"Location\":'", 1, "invalid profile"),
        (r#"kando location delete -p "$PROFILE" -s /"#, 1, "empty path"),
        ("kando output a-b c", 1, "letters, digits and underscores"),
        ("kando output a", 2, "VALUE"),
    ];
    for (script, code, named) in cases {
        let (found, out, log) = shell.run(script).await;
        assert_eq!((found, out.as_slice()), (Some(code), &b""[..]), "{script}: {log}");
        assert!(log.contains(named) && !log.contains(SECRET_KEY), "{script}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blueprints_are_validated_without_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blueprints.yaml");
    let text = r#"
apiVersion: cr.kanister.io/v1alpha1
kind: Blueprint
metadata: {name: good}
actions:
  backup:
    phases:
    - func: KubeTask
      name: dump
      args:
        image: tools
        command: [sh, -c, "kando location push --profile '{{ toJson .Profile }}' --path /a -"]
---
apiVersion: cr.kanister.io/v1alpha1
kind: Blueprint
metadata: {name: bad}
actions:
  backup:
    phases:
    - func: KubeTask
      name: dump
      args: {image: "{{ .x", podLabels: ~}
"#;
    std::fs::write(&file, text).unwrap();
    let output = plimsoll().args(["blueprint", "validate"]).arg(&file).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(6), "{said}");
    for part in [
        "warning: action backup, phase dump, argument command: .Profile exposes a credential",
        "blueprint good is valid: 0 errors, 1 warnings",
        "error: action backup, phase dump: KubeTask requires the argument command (MissingArgument)",
        "error: action backup, phase dump, argument image: template line:1: unclosed action (TemplateInvalid)",
        "argument podLabels: value is null",
        "blueprint bad is invalid: 4 errors, 0 warnings",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let output = plimsoll().args(["blueprint", "validate", "-o", "json"]).arg(&file).output().await.unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((list[0]["blueprint"].as_str(), list[1]["findings"].as_array().map(Vec::len)), (Some("good"), Some(4)));
}
