//! The functions of CSI snapshots.
//!
//! All of them may be run again: names are fixed by the arguments or by the phase, and an object that this phase has made is known
//! as such.

use futures::future::BoxFuture;
use plimsoll_select::quantity::Quantity;
use serde_json::{Value, json};

use super::call::{Again, Call, Function};
use super::snapshots::{GROUP, Objects};
use crate::Error;
use crate::board::Outputs;

/// Takes a snapshot of a claim's volume.
pub struct CreateSnapshot;
/// Makes a snapshot that the storage already has known to the cluster.
pub struct CreateSnapshotStatic;
/// Makes a claim whose volume begins as a snapshot.
pub struct RestoreSnapshot;
/// Deletes a snapshot.
pub struct DeleteSnapshot;
/// Deletes what a snapshot was bound to.
pub struct DeleteSnapshotContent;

impl Function for CreateSnapshot {
    fn again(&self) -> Again {
        Again::Repeat
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let text = |name: &str| call.arguments.text(name);
            let (claim, namespace, class) = (text("pvc")?, text("namespace")?, text("snapshotClass")?);
            let name = call.arguments.optional_text("name")?.unwrap_or_else(|| name_after(&claim, &call.identity));
            let labels = call.arguments.map("labels")?;
            let snapshots = Objects::snapshots(&call.client, &namespace);
            let spec = json!({ "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": claim } });
            let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
            snapshots.create(call, json!({ "metadata": metadata, "spec": spec })).await?;
            let status = snapshots.until_ready(call, &name).await?;
            Ok(outputs(&status, &json!({ "name": name, "pvc": claim, "namespace": namespace })))
        })
    }
}

/// The name of a snapshot that its author has not named: always the same for the same run of a phase.
fn name_after(claim: &str, identity: &str) -> String {
    let suffix: String = identity.chars().take(5).collect();
    format!("{claim}-snapshot-{suffix}")
}

/// What is known of a snapshot that is ready, beside these fields.
fn outputs(status: &Value, fields: &Value) -> Outputs {
    let text = |field: &str| Value::String(status[field].as_str().unwrap_or_default().to_owned());
    let mut outputs = fields.as_object().cloned().unwrap_or_default();
    outputs.insert("restoreSize".into(), text("restoreSize"));
    outputs.insert("snapshotContent".into(), text("boundVolumeSnapshotContentName"));
    outputs
}

impl Function for CreateSnapshotStatic {
    fn again(&self) -> Again {
        Again::Repeat
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let text = |name: &str| call.arguments.text(name);
            let (name, namespace, class) = (text("name")?, text("namespace")?, text("snapshotClass")?);
            let (driver, handle) = (text("driver")?, text("snapshotHandle")?);
            let snapshots = Objects::snapshots(&call.client, &namespace);
            // Before anything is made: the content alone would be left behind.
            snapshots.check_name(call, "name", &name).await?;
            let policy = Objects::classes(&call.client).get(&class).await?.data["deletionPolicy"].clone();
            let content = format!("{name}-content-{}", call.identity);
            let spec = json!({
                "driver": driver, "deletionPolicy": policy, "volumeSnapshotClassName": class,
                "source": { "snapshotHandle": handle },
                "volumeSnapshotRef": { "apiVersion": format!("{GROUP}/v1"), "kind": "VolumeSnapshot",
                    "namespace": namespace, "name": name },
            });
            let contents = Objects::contents(&call.client);
            contents.create(call, json!({ "metadata": { "name": content }, "spec": spec })).await?;
            let spec = json!({ "volumeSnapshotClassName": class, "source": { "volumeSnapshotContentName": content } });
            let metadata = json!({ "name": name, "namespace": namespace });
            snapshots.create(call, json!({ "metadata": metadata, "spec": spec })).await?;
            let status = snapshots.until_ready(call, &name).await?;
            Ok(outputs(&status, &json!({ "name": name, "namespace": namespace })))
        })
    }
}

impl Function for RestoreSnapshot {
    fn again(&self) -> Again {
        Again::Repeat
    }

    /// Whether its volume is made at once or for the first pod is its class's affair, so nobody waits for it.
    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let text = |name: &str| call.arguments.text(name);
            let (name, namespace) = (text("name")?, text("namespace")?);
            let claim = claim_of(call, &name, &namespace)?;
            // A claim that asks for what is not there would wait for ever.
            Objects::snapshots(&call.client, &namespace).get(&name).await?;
            Objects::claims(&call.client, &namespace).create(call, claim).await?;
            Ok(Outputs::new())
        })
    }
}

fn claim_of(call: &Call, snapshot: &str, namespace: &str) -> Result<Value, Error> {
    let arguments = &call.arguments;
    let size = arguments.text("restoreSize")?;
    if !Quantity::parse(&size).is_some_and(Quantity::is_positive) {
        return Err(Error::argument("restoreSize", format!("is {size:?}, not a size above zero such as 10Gi")));
    }
    let modes =
        if arguments.has("accessModes") { arguments.list("accessModes")? } else { vec!["ReadWriteOnce".into()] };
    for mode in &modes {
        one_of("accessModes", mode, &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"])?;
    }
    let volume_mode = arguments.optional_text("volumeMode")?.unwrap_or_else(|| "Filesystem".into());
    one_of("volumeMode", &volume_mode, &["Filesystem", "Block"])?;
    Ok(json!({
        "metadata": { "name": arguments.text("pvc")?, "namespace": namespace, "labels": arguments.map("labels")? },
        "spec": {
            "accessModes": modes, "volumeMode": volume_mode, "storageClassName": arguments.text("storageClass")?,
            "dataSource": { "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": snapshot },
            "resources": { "requests": { "storage": size } },
        },
    }))
}

fn one_of(argument: &str, value: &str, known: &[&str]) -> Result<(), Error> {
    if known.contains(&value) {
        return Ok(());
    }
    Err(Error::argument(argument, format!("is {value:?}, not one of {}", known.join(", "))))
}

impl Function for DeleteSnapshot {
    fn again(&self) -> Again {
        Again::Repeat
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let (name, namespace) = (call.arguments.text("name")?, call.arguments.text("namespace")?);
            let snapshots = Objects::snapshots(&call.client, &namespace);
            snapshots.delete(call, &name).await?;
            snapshots.until_gone(call, &name).await?;
            Ok(Outputs::new())
        })
    }
}

impl Function for DeleteSnapshotContent {
    fn again(&self) -> Again {
        Again::Repeat
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let name = call.arguments.text("name")?;
            Objects::contents(&call.client).delete(call, &name).await?;
            Ok(Outputs::new())
        })
    }
}
