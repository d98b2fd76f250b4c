//! `plimsoll cancel`.

use anyhow::{Context, bail};
use kube::Api;
use kube::api::{Patch, PatchParams};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use serde_json::json;

use crate::args::{Cancel, Global};
use crate::exit::{Outcome, Usage};
use crate::subjects::{operation_name, read};
use crate::{connect, output, wait};

/// Asks for the end of an operation.
pub async fn run(global: &Global, options: Cancel) -> anyhow::Result<Outcome> {
    let reference = &options.reference;
    if !reference.kind.is_carried_out() {
        bail!(Usage(format!(
            "a {} does not run: write backup/NAME, restore/NAME or action/NAME",
            reference.kind.word()
        )));
    }
    let client = connect::client(global).await?;
    let (kind, name) = (reference.kind.word(), &reference.name);
    let seen = read(&client, &global.namespace, reference).await?;
    if seen.outcome().is_some() {
        bail!("{kind} {name} has ended already: {}", seen.phase());
    }
    if seen.operation.is_none() {
        bail!("{kind} {name} has no operation: no Plimsoll server has taken it up yet, or another program works on it");
    }
    let api: Api<Operation> = Api::namespaced(client.clone(), &global.namespace);
    let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
    api.patch(&operation_name(reference), &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("cannot cancel {kind} {name}"))?;
    if options.wait {
        let outcome = wait::until_ended(&client, &global.namespace, reference, None).await?;
        // Being cancelled is what was asked for.
        return Ok(if outcome == Outcome::Cancelled { Outcome::Success } else { outcome });
    }
    output::line(format!("{kind} {name} is asked to end. `plimsoll describe {kind}/{name}` shows whether it has."));
    Ok(Outcome::Success)
}
