//! `plimsoll cancel`.

use anyhow::bail;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use serde_json::json;

use crate::args::{Cancel, Global};
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::subjects::{operation_name, read};
use crate::{connect, output, wait};

/// Requests the cancellation of an operation.
pub async fn run(global: &Global, options: Cancel) -> anyhow::Result<Outcome> {
    let reference = &options.reference;
    if !reference.kind.is_operation() {
        bail!(UsageError(format!(
            "a {} cannot be cancelled: expected backup/NAME, restore/NAME or action/NAME",
            reference.kind.word()
        )));
    }
    let client = connect::client(global).await?;
    let (kind, name) = (reference.kind.word(), &reference.name);
    let subject = read(&client, &global.namespace, reference).await?;
    if subject.outcome().is_some() {
        bail!("{kind} {name} has already ended: {}", subject.phase());
    }
    if subject.operation.is_none() {
        bail!("{kind} {name} has no operation: no Plimsoll server has started it yet, or another program runs it");
    }
    let api: Api<Operation> = Api::namespaced(client.clone(), &global.namespace);
    let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
    api.patch(&operation_name(reference), &PatchParams::default(), &patch).await?;
    if options.wait {
        let outcome = wait::until_ended(&client, &global.namespace, reference, None).await?;
        // Cancelled is the requested outcome.
        return Ok(if outcome == Outcome::Cancelled { Outcome::Success } else { outcome });
    }
    output::line(format!("{kind}/{name}: cancellation requested; follow it with `plimsoll describe {kind}/{name}`"));
    Ok(Outcome::Success)
}
