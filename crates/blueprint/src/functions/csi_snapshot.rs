//! The functions for CSI snapshots.
//!
//! All of them are repeatable: names are determined by the arguments or the phase, and objects of this phase are recognized.

use plimsoll_select::quantity::Quantity;
use serde_json::{Value, json};

use super::call::Call;
use super::snapshot_objects::{GROUP, SnapshotObjects};
use crate::Error;
use crate::results::Outputs;

/// Creates a snapshot of a claim.
pub async fn create_snapshot(call: &Call) -> Result<Outputs, Error> {
    let text = |name: &str| call.arguments.text(name);
    let (claim, namespace, class) = (text("pvc")?, text("namespace")?, text("snapshotClass")?);
    let name = call.arguments.optional_text("name")?.unwrap_or_else(|| default_name(&claim, &call.identity));
    let labels = call.arguments.map("labels")?;
    let snapshots = SnapshotObjects::snapshots(&call.client, &namespace);
    let spec = json!({ "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": claim } });
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
    snapshots.create(call, json!({ "metadata": metadata, "spec": spec })).await?;
    let status = snapshots.wait_until_ready(call, &name).await?;
    Ok(outputs(&status, &json!({ "name": name, "pvc": claim, "namespace": namespace })))
}

/// The default name of a snapshot: the same for every attempt of a phase.
fn default_name(claim: &str, identity: &str) -> String {
    let suffix: String = identity.chars().take(5).collect();
    format!("{claim}-snapshot-{suffix}")
}

/// The outputs for a ready snapshot, with these fields.
fn outputs(status: &Value, fields: &Value) -> Outputs {
    let text = |field: &str| Value::String(status[field].as_str().unwrap_or_default().to_owned());
    let mut outputs = fields.as_object().cloned().unwrap_or_default();
    outputs.insert("restoreSize".into(), text("restoreSize"));
    outputs.insert("snapshotContent".into(), text("boundVolumeSnapshotContentName"));
    outputs
}

/// Creates the objects for an existing snapshot of the storage system.
pub async fn create_snapshot_static(call: &Call) -> Result<Outputs, Error> {
    let text = |name: &str| call.arguments.text(name);
    let (name, namespace, class) = (text("name")?, text("namespace")?, text("snapshotClass")?);
    let (driver, handle) = (text("driver")?, text("snapshotHandle")?);
    let snapshots = SnapshotObjects::snapshots(&call.client, &namespace);
    // Checked first: otherwise the content alone would be left behind.
    snapshots.check_name(call, "name", &name).await?;
    let policy = SnapshotObjects::classes(&call.client).get(&class).await?.data["deletionPolicy"].clone();
    let content = format!("{name}-content-{}", call.identity);
    let spec = json!({
        "driver": driver, "deletionPolicy": policy, "volumeSnapshotClassName": class,
        "source": { "snapshotHandle": handle },
        "volumeSnapshotRef": { "apiVersion": format!("{GROUP}/v1"), "kind": "VolumeSnapshot",
            "namespace": namespace, "name": name },
    });
    let contents = SnapshotObjects::contents(&call.client);
    contents.create(call, json!({ "metadata": { "name": content }, "spec": spec })).await?;
    let spec = json!({ "volumeSnapshotClassName": class, "source": { "volumeSnapshotContentName": content } });
    let metadata = json!({ "name": name, "namespace": namespace });
    snapshots.create(call, json!({ "metadata": metadata, "spec": spec })).await?;
    let status = snapshots.wait_until_ready(call, &name).await?;
    Ok(outputs(&status, &json!({ "name": name, "namespace": namespace })))
}

/// Creates a claim from a snapshot.
///
/// Does not wait for the volume: with `WaitForFirstConsumer` it is provisioned for the first pod.
pub async fn restore_snapshot(call: &Call) -> Result<Outputs, Error> {
    let text = |name: &str| call.arguments.text(name);
    let (name, namespace) = (text("name")?, text("namespace")?);
    let claim = claim_of(call, &name, &namespace)?;
    // A claim with a missing data source would stay pending forever.
    SnapshotObjects::snapshots(&call.client, &namespace).get(&name).await?;
    SnapshotObjects::claims(&call.client, &namespace).create(call, claim).await?;
    Ok(Outputs::new())
}

fn claim_of(call: &Call, snapshot: &str, namespace: &str) -> Result<Value, Error> {
    let arguments = &call.arguments;
    let size = arguments.text("restoreSize")?;
    if !Quantity::parse(&size).is_some_and(Quantity::is_positive) {
        return Err(Error::argument("restoreSize", format!("expected a size above zero such as 10Gi, found {size:?}")));
    }
    let modes =
        if arguments.has("accessModes") { arguments.list("accessModes")? } else { vec!["ReadWriteOnce".into()] };
    for mode in &modes {
        require_one_of("accessModes", mode, &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"])?;
    }
    let volume_mode = arguments.optional_text("volumeMode")?.unwrap_or_else(|| "Filesystem".into());
    require_one_of("volumeMode", &volume_mode, &["Filesystem", "Block"])?;
    Ok(json!({
        "metadata": { "name": arguments.text("pvc")?, "namespace": namespace, "labels": arguments.map("labels")? },
        "spec": {
            "accessModes": modes, "volumeMode": volume_mode, "storageClassName": arguments.text("storageClass")?,
            "dataSource": { "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": snapshot },
            "resources": { "requests": { "storage": size } },
        },
    }))
}

fn require_one_of(argument: &str, value: &str, known: &[&str]) -> Result<(), Error> {
    if known.contains(&value) {
        return Ok(());
    }
    Err(Error::argument(argument, format!("expected one of {}, found {value:?}", known.join(", "))))
}

/// Deletes a snapshot.
pub async fn delete_snapshot(call: &Call) -> Result<Outputs, Error> {
    let (name, namespace) = (call.arguments.text("name")?, call.arguments.text("namespace")?);
    let snapshots = SnapshotObjects::snapshots(&call.client, &namespace);
    snapshots.delete(call, &name).await?;
    snapshots.wait_until_deleted(call, &name).await?;
    Ok(Outputs::new())
}

/// Deletes a VolumeSnapshotContent.
pub async fn delete_snapshot_content(call: &Call) -> Result<Outputs, Error> {
    let name = call.arguments.text("name")?;
    SnapshotObjects::contents(&call.client).delete(call, &name).await?;
    Ok(Outputs::new())
}
