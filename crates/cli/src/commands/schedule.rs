//! `plimsoll schedule create`, `pause` and `unpause`.

use kube::api::{Patch, PatchParams};
use plimsoll_api::velero::v1::{Schedule, ScheduleSpec};
use serde_json::json;

use super::backup::spec;
use super::create::{metadata, reference, send};
use crate::args::Global;
use crate::args::create::CreateSchedule;
use crate::args::names::{ResourceKind, Targets};
use crate::args::options::PauseOptions;
use crate::exit::Outcome;
use crate::{connect, output, subjects};

/// Creates a schedule, or prints it.
pub async fn create(global: &Global, options: CreateSchedule) -> anyhow::Result<Outcome> {
    let name = &options.name;
    let object = Schedule {
        metadata: metadata(global, name, &options.metadata)?,
        spec: ScheduleSpec {
            template: Some(spec(&options.template)?),
            schedule: Some(options.schedule.clone()),
            use_owner_references_in_backup: Some(options.use_owner_references_in_backup),
            paused: options.paused.then_some(true),
            skip_immediately: options.skip_immediately,
            ..ScheduleSpec::default()
        },
        status: None,
    };
    if let Some(format) = options.output {
        output::object(&object, format)?;
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    send(&client, &global.namespace, &object, &reference(ResourceKind::Schedule, name)).await?;
    output::line(format!(
        "schedule/{name} created; list its backups with `plimsoll get backups -l velero.io/schedule-name={name}`"
    ));
    Ok(Outcome::Success)
}

/// Pauses or resumes schedules.
pub async fn pause(global: &Global, names: Vec<String>, options: PauseOptions, pause: bool) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let targets = Targets { kind: ResourceKind::Schedule, names };
    let chosen =
        subjects::choose(&client, &global.namespace, &targets, options.all, options.selector.as_deref()).await?;
    let word = if pause { "paused" } else { "unpaused" };
    if chosen.is_empty() {
        output::line("no schedules found");
    }
    for schedule in chosen {
        let name = schedule.name();
        let is_paused = schedule.object.pointer("/spec/paused").and_then(serde_json::Value::as_bool) == Some(true);
        if is_paused == pause {
            output::line(format!("schedule/{name} already {word}"));
            continue;
        }
        let mut spec = json!({ "paused": pause });
        if let Some(skip) = options.skip_immediately {
            spec["skipImmediately"] = json!(skip);
        }
        let patch = Patch::Merge(json!({ "spec": spec }));
        let api = ResourceKind::Schedule.api(&client, &global.namespace);
        api.patch(name, &PatchParams::default(), &patch).await?;
        output::line(format!("schedule/{name} {word}"));
    }
    Ok(Outcome::Success)
}
