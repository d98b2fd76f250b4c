//! The functions that back up, restore and delete with a Kopia repository server.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::call::Call;
use super::exec::Exec;
use super::kopia::{Kopia, decimal_size};
use super::phase_meters::{Direction, TransferProgress};
use super::pods::CONTAINER;
use super::volume_data::{claims, idle, outputs};
use crate::Error;
use crate::kopia_server::{KopiaServer, fingerprint};
use crate::percent::Step;
use crate::results::Outputs;

/// The host of the user, if the server knows several.
const HOSTNAME: &str = "repositoryServerUserHostname";
/// The option of an action that makes restored files sparse.
const SPARSE_OPTION: &str = "sparseRestore";

/// Backs up a path of a running container.
pub async fn backup_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, pod, container) =
        (arguments.text("namespace")?, arguments.text("pod")?, arguments.text("container")?);
    let path = arguments.text("includePath")?;
    let tags = tags(call)?;
    let server = server(call)?;
    Exec::new(&namespace, &pod, Some(&container), Vec::new()).check(&call.client).await?;
    call.meters.report(&pod, TransferProgress { direction: Direction::Upload, ..TransferProgress::default() });
    let kopia = Kopia::connect(call, (&namespace, &pod, &container), server).await?;
    call.host.kill_point("phase.backup.before");
    let saved = kopia.create_snapshot(&path, &tags, &pod).await;
    call.host.kill_point("phase.backup.after");
    kopia.disconnect().await;
    let saved = saved?;
    let done = TransferProgress {
        direction: Direction::Upload,
        read: saved.size,
        total: Some(saved.size),
        sent: Some(saved.uploaded),
        seconds_left: None,
    };
    call.meters.report(&pod, done);
    call.log(&format!("snapshot {} saved: {}", saved.id, decimal_size(saved.size)));
    Ok(outputs(json!({
        "backupID": saved.id, "size": decimal_size(saved.size), "phySize": decimal_size(saved.uploaded),
    })))
}

/// The tags of the snapshot: `key:value`, separated by commas.
fn tags(call: &Call) -> Result<Vec<String>, Error> {
    let text = call.arguments.optional_text("snapshotTags")?.unwrap_or_default();
    let tags: Vec<_> = text.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    match tags.iter().find(|tag| tag.split_once(':').is_none_or(|(key, _)| key.is_empty())) {
        Some(tag) => Err(Error::argument("snapshotTags", format!("expected key:value, found {tag:?}"))),
        None => Ok(tags),
    }
}

/// Restores a snapshot to claims.
pub async fn restore_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, id) = (arguments.text("namespace")?, arguments.text("backupIdentifier")?);
    let target = arguments.text("restorePath")?;
    let pod = arguments.optional_text("pod")?;
    if pod.is_some() == arguments.has("volumes") {
        return Err(Error::argument("pod", "exactly one of pod and volumes is required"));
    }
    let server = server(call)?;
    let claims = claims(call, &namespace, pod.as_deref()).await?;
    let handle = idle(call, "restore-data-", namespace, &claims, "").await?;
    let kopia = Kopia::connect(call, (&handle.namespace, &handle.name, CONTAINER), server).await?;
    let total = kopia.snapshot_size(&id).await?;
    let sparse = call.params.tree()["Options"].get(SPARSE_OPTION).is_some();
    call.host.kill_point("phase.restore.before");
    kopia.restore(&id, &target, sparse, total, "restore").await?;
    call.host.kill_point("phase.restore.after");
    if let Some(total) = total {
        let (direction, done) = (Direction::Download, Some(total));
        call.meters.report(
            "restore",
            TransferProgress { direction, read: total, total: done, sent: done, seconds_left: None },
        );
    }
    call.log(&format!("snapshot {id} restored to {target}"));
    Ok(Outputs::new())
}

/// Deletes a snapshot.
pub async fn delete_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, id) = (arguments.text("namespace")?, arguments.text("backupID")?);
    let server = server(call)?;
    let handle = idle(call, "delete-data-", namespace, &BTreeMap::new(), "").await?;
    call.meters.reach(Step::Execution);
    let kopia = Kopia::connect(call, (&handle.namespace, &handle.name, CONTAINER), server).await?;
    call.host.kill_point("phase.forget.before");
    kopia.delete_snapshot(&id).await?;
    call.host.kill_point("phase.forget.after");
    Ok(Outputs::new())
}

/// The server of the action, and the user whose host the arguments name.
fn server(call: &Call) -> Result<KopiaServer, Error> {
    let known = &call.params.tree()["RepositoryServer"];
    if known.is_null() {
        return Err(Error::Missing("the action has no repositoryServer".into()));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let users = &known["Credentials"]["ServerUserAccess"];
    let wanted = call.arguments.optional_text(HOSTNAME)?;
    let (hostname, password) = user(users, wanted.as_deref())?;
    let certificate = data(&known["Credentials"]["ServerTLS"], "tls.crt");
    let fingerprint = certificate.as_deref().and_then(fingerprint).ok_or_else(|| {
        let name = text(&known["Credentials"]["ServerTLS"]["metadata"]["name"]);
        Error::Missing(format!("secret {name} has no certificate in tls.crt"))
    })?;
    Ok(KopiaServer {
        url: text(&known["Address"]),
        fingerprint,
        username: text(&known["Username"]),
        hostname,
        password: password.into(),
        content_cache_mb: known["ContentCacheMB"].as_i64().unwrap_or_default(),
        metadata_cache_mb: known["MetadataCacheMB"].as_i64().unwrap_or_default(),
    })
}

/// A host and its password in the Secret of the users: the one that is wanted, or the first one.
fn user(secret: &Value, wanted: Option<&str>) -> Result<(String, String), Error> {
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    let hosts: BTreeMap<_, _> = secret["data"].as_object().into_iter().flatten().collect();
    let hostname = match wanted {
        Some(wanted) => hosts.keys().find(|host| host.as_str() == wanted),
        None => hosts.keys().next(),
    };
    let password = hostname.and_then(|hostname| data(secret, hostname));
    match (hostname, password) {
        (Some(hostname), Some(password)) => Ok(((*hostname).clone(), password)),
        (None, _) if wanted.is_some() => {
            Err(Error::argument(HOSTNAME, format!("secret {name} has no host {}", wanted.unwrap_or_default())))
        }
        _ => Err(Error::Missing(format!("secret {name} has no user of the Kopia server"))),
    }
}

fn data(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret["data"][key].as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_that_of_the_host_in_the_argument_or_of_the_first_host() {
        let secret = json!({ "metadata": { "name": "users" }, "data": { "b": BASE64_STANDARD.encode("two"), "a": BASE64_STANDARD.encode("one") } });
        assert_eq!(user(&secret, None).unwrap(), ("a".into(), "one".into()));
        assert_eq!(user(&secret, Some("b")).unwrap(), ("b".into(), "two".into()));
        let error = user(&secret, Some("c")).unwrap_err().to_string();
        assert_eq!(error, "invalid argument repositoryServerUserHostname: secret users has no host c");
        let error = user(&json!({ "metadata": { "name": "users" } }), None).unwrap_err().to_string();
        assert_eq!(error, "secret users has no user of the Kopia server");
    }
}
