//! `plimsoll volume`: progress and rate of transfers of volume data and of snapshots of plugins.

use std::time::Duration;

use anyhow::bail;
use futures::StreamExt;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use plimsoll_api::client_error::error_text;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore};
use plimsoll_progress::view;
use plimsoll_progress::{Clock, Operation, Task, Total, Unit};

use super::get::age;
use crate::args::Global;
use crate::args::options::{ListFormat, ObjectFormat};
use crate::args::volume::{TransferSelection, Volume, VolumeDescribe, VolumeGet, VolumeWatch};
use crate::describe::page::Page;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::transfer::{self, Transfer, TransferFilter};
use crate::{connect, draw, output, plugin_transfer};

/// Carries out one of its verbs.
pub async fn run(global: &Global, verb: Volume) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    match verb {
        Volume::Get(options) => get(&client, &global.namespace, &options).await,
        Volume::Describe(options) => describe(&client, &global.namespace, &options).await,
        Volume::Watch(options) => watch(&client, &global.namespace, &options).await,
    }
}

/// A size, for people.
pub fn bytes_text(bytes: u64) -> String {
    view::size_text(bytes)
}

async fn choose(
    client: &kube::Client,
    namespace: &str,
    selection: &TransferSelection,
) -> anyhow::Result<Vec<Transfer>> {
    let of = match (&selection.backup, &selection.restore) {
        (Some(backup), _) => TransferFilter::Backup(backup),
        (_, Some(restore)) => TransferFilter::Restore(restore),
        _ => TransferFilter::All,
    };
    let mut found = transfer::list_pod_volumes(client, namespace, of).await?;
    found.extend(transfer::list_data_movements(client, namespace, of).await?);
    found.extend(plugin_transfer::list(client, namespace, of).await?.iter().map(Transfer::from));
    if let Some(missing) = selection.names.iter().find(|name| !found.iter().any(|one| one.name == **name)) {
        bail!("volume transfer {missing:?} not found; list them with `plimsoll volume get`");
    }
    found.retain(|one| selection.names.is_empty() || selection.names.contains(&one.name));
    Ok(found)
}

async fn get(client: &kube::Client, namespace: &str, options: &VolumeGet) -> anyhow::Result<Outcome> {
    let found = choose(client, namespace, &options.selection).await?;
    match options.output {
        ListFormat::Table => table(&found).into_iter().for_each(output::line),
        ListFormat::Name => found.iter().for_each(|one| output::line(&one.name)),
        ListFormat::Json => output::object(&found, ObjectFormat::Json)?,
        ListFormat::Yaml => output::object(&found, ObjectFormat::Yaml)?,
    }
    Ok(Outcome::Success)
}

fn table(found: &[Transfer]) -> Vec<String> {
    let header = [
        "NAME", "KIND", "OF", "POD", "VOLUME", "STATUS", "PROGRESS", "BYTES", "FILES", "RATE", "LEFT", "NODE", "MOVER",
        "AGE", "DOING",
    ];
    let row = |one: &Transfer| {
        vec![
            one.name.clone(),
            one.kind.to_owned(),
            format!("{}/{}", one.direction.word(), one.of),
            one.place(),
            one.volume.clone(),
            one.phase.clone(),
            one.percent().map(|percent| format!("{percent}%")).unwrap_or_default(),
            moved(one),
            files(one),
            rate(one),
            time_left(one),
            one.node.clone(),
            one.uploader.clone(),
            age(one.created.map(|time| time.to_string()).as_deref()),
            one.doing.clone().unwrap_or_default(),
        ]
    };
    output::table(&header.map(str::to_owned), &found.iter().map(row).collect::<Vec<_>>())
}

/// `3.1 MiB of 2.0 GiB`, as far as it is known.
fn moved(one: &Transfer) -> String {
    if one.bytes_done.is_none() && one.total_bytes.is_none() { String::new() } else { view::bytes_text(&one.bytes()) }
}

/// `17 of 40`, as far as it is known.
fn files(one: &Transfer) -> String {
    match (one.files_done, one.total_files) {
        (Some(done), Some(total)) => format!("{done} of {}", total.max(done)),
        (Some(done), None) => done.to_string(),
        _ => String::new(),
    }
}

/// The rate that the transfer reports; once it has ended, its average rate.
fn rate(one: &Transfer) -> String {
    let measured = || {
        let (from, to) = (one.started?, one.completed.unwrap_or_else(jiff::Timestamp::now));
        let seconds = u64::try_from(to.duration_since(from).as_secs()).ok().filter(|seconds| *seconds > 0)?;
        Some(one.bytes_done? / seconds)
    };
    let rate = if one.is_ended() { measured() } else { one.rate };
    rate.map(|rate| format!("{}/s", view::size_text(rate))).unwrap_or_default()
}

fn time_left(one: &Transfer) -> String {
    let text = |seconds: u64| view::duration_text(Duration::from_secs(seconds));
    match one.seconds_left.filter(|_| !one.is_ended()).map(|left| left.map(text)) {
        Some([low, high]) if low == high => low,
        Some([low, high]) => format!("{low} to {high}"),
        None => String::new(),
    }
}

async fn describe(client: &kube::Client, namespace: &str, options: &VolumeDescribe) -> anyhow::Result<Outcome> {
    let found = choose(client, namespace, &options.selection).await?;
    if let Some(format) = options.output {
        output::object(&found, format)?;
        return Ok(Outcome::Success);
    }
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            output::line("");
        }
        page(one).into_iter().for_each(output::line);
    }
    Ok(Outcome::Success)
}

fn page(one: &Transfer) -> Vec<String> {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let time = |time: Option<jiff::Timestamp>| time.map(|time| crate::describe::subject::time(&time.to_string()));
    let mut page = Page::default();
    page.section(|section| {
        section.field("Name", &one.name);
        section.field("Kind", one.kind);
        section.field("Part of", format!("{} {}", one.direction.word(), one.of));
        section.field("Pod", one.place());
        section.field("Volume", &one.volume);
        section.some("Node", some(one.node.clone()));
        section.field("Mover", &one.uploader);
        section.some("Snapshot", one.snapshot.as_deref());
        for (key, value) in &one.plugin_specific {
            section.field(key, value);
        }
    });
    page.section(|section| {
        section.field("Phase", &one.phase);
        section.some("Message", one.message.as_deref());
        section.some("Doing", one.doing.as_deref());
        section.some("Progress", one.percent().map(|percent| format!("{percent} %")));
        section.some("Bytes", some(moved(one)));
        section.some("Files", some(files(one)));
        section.some("New in the repository", one.incremental_bytes.map(view::size_text));
        section.some("Rate", some(rate(one)));
        section.some("Time left", some(time_left(one)));
        section.some(&one.verdict.as_deref().unwrap_or("Stalled").to_uppercase(), one.stalled.as_deref());
    });
    page.section(|section| {
        section.some("Created", time(one.created));
        section.some("Started", time(one.started));
        section.some("Completed", time(one.completed));
    });
    page.lines()
}

/// Draws until all have ended.
async fn watch(client: &kube::Client, namespace: &str, options: &VolumeWatch) -> anyhow::Result<Outcome> {
    let backups: Api<PodVolumeBackup> = Api::namespaced(client.clone(), namespace);
    let restores: Api<PodVolumeRestore> = Api::namespaced(client.clone(), namespace);
    let changed = |changed: Result<(), watcher::Error>| changed.err().map(|error| error_text(&error));
    let mut news = futures::stream::select(
        watcher(backups, watcher::Config::default())
            .default_backoff()
            .map(move |event| changed(event.map(|_| ())))
            .boxed(),
        watcher(restores, watcher::Config::default())
            .default_backoff()
            .map(move |event| changed(event.map(|_| ())))
            .boxed(),
    );
    let mut picture = ProgressDisplay::new();
    loop {
        let found = choose(client, namespace, &options.selection).await?;
        if found.iter().all(Transfer::is_ended) {
            picture.clear();
            table(&found).into_iter().for_each(output::line);
            return Ok(outcome(&found));
        }
        let (tree, _tasks) = tree(&found);
        picture.show(&view::rows_within(&tree.snapshot(), draw::max_rows()));
        // Not every change is drawn: a burst of them is one picture.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let next = tokio::time::timeout(Duration::from_secs(2), news.next()).await;
        if let Ok(Some(Some(error))) = next {
            tracing::warn!("watch failed, retrying: {error}");
        }
    }
}

fn outcome(found: &[Transfer]) -> Outcome {
    let any = |phase: &str| found.iter().any(|one| one.phase == phase);
    match (any("Failed"), any("Canceled")) {
        (true, _) => Outcome::Failed,
        (false, true) => Outcome::Cancelled,
        _ => Outcome::Success,
    }
}

/// The transfers as a tree of tasks. The caller holds the tasks: a dropped task counts as interrupted.
fn tree(found: &[Transfer]) -> (Operation, Vec<Task>) {
    let operation = Operation::new("volumes", Clock::system());
    let task = |one: &Transfer| {
        let volume = if one.volume.is_empty() { &one.name } else { &one.volume };
        let task = operation.root().child(format!("{} {volume}", one.place()));
        fill(&task, one);
        task
    };
    let tasks = found.iter().map(task).collect();
    (operation, tasks)
}

fn fill(task: &Task, one: &Transfer) {
    let (meter, bytes) = (task.meter(Unit::Bytes), one.bytes());
    meter.set_total(bytes.total);
    meter.set_done(bytes.done);
    if let Some(done) = one.files_done {
        let files = task.meter(Unit::Files);
        files.set_total(one.total_files.map_or(Total::Unknown, |total| Total::Final(total.max(done))));
        files.set_done(done);
    }
    let doing = one.doing.clone().unwrap_or_default();
    let details = [one.phase.clone(), rate(one), time_left(one), doing].into_iter().filter(|text| !text.is_empty());
    task.say(details.collect::<Vec<_>>().join(", "));
    match one.phase.as_str() {
        "Completed" => task.finish(),
        "Failed" => task.fail(one.message.as_deref().unwrap_or("failed")),
        "Canceled" => task.cancel("cancelled"),
        _ if one.is_ended() => task.finish(),
        _ => {}
    }
}
