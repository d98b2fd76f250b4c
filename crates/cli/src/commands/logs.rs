//! `plimsoll logs`.
//!
//! The log of one that has ended is a file in its location. While it runs, the server keeps the end of the log in the
//! Operation, with the offset of that text in the whole: missed lines are reported, and the stored file has them in the end.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use flate2::write::MultiGzDecoder;
use futures::{StreamExt, stream};
use kube::runtime::watcher;
use kube::{Api, Client};
use plimsoll_api::plimsoll::v1alpha1::{LogTail, Operation as OperationObject};
use plimsoll_api::velero::v1::DownloadTargetKind;
use plimsoll_progress::{Clock, Operation};

use crate::args::Global;
use crate::args::action::LogsAction;
use crate::args::names::{Reference, ResourceKind};
use crate::args::options::{LogsOptions, TlsOptions};
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::remote::{MissingFile, Remote};
use crate::subjects::{self, Subject};
use crate::{connect, output};

/// How long the server may take to answer with a signed URL, by default.
const URL_TIMEOUT: Duration = Duration::from_secs(30);

/// Prints the log; with `--follow` from before there is a file of it.
pub async fn run(global: &Global, reference: &Reference, options: &LogsOptions) -> anyhow::Result<Outcome> {
    if !reference.kind.is_operation() {
        bail!(UsageError(format!(
            "a {} has no log: expected backup/NAME, restore/NAME or action/NAME",
            reference.kind.word()
        )));
    }
    if reference.kind == ResourceKind::Action {
        let options = LogsAction { name: reference.name.clone(), follow: options.follow };
        return Box::pin(super::action::logs(global, options)).await;
    }
    let client = connect::client(global).await?;
    let subject = subjects::read(&client, &global.namespace, reference).await?;
    let (kind, name) = (reference.kind.word(), &reference.name);
    let mut printed = LogPosition::default();
    if subject.outcome().is_none() {
        if !options.follow {
            bail!("{kind} {name} is {}; follow its log with `plimsoll {kind} logs {name} --follow`", subject.phase());
        }
        printed = follow(&client, &global.namespace, reference).await?;
    }
    let ended = subjects::read(&client, &global.namespace, reference).await?;
    if ended.phase() == "FailedValidation" {
        bail!("{kind} {name} failed validation and has no log; see why with `plimsoll describe {kind}/{name}`");
    }
    // A log that began again is printed from its beginning.
    let attempt = ended.operation.as_ref().and_then(|operation| operation.status.as_ref()?.attempt);
    let skip = if attempt == printed.attempt { printed.bytes } else { 0 };
    let remote = Remote::of(&client, &global.namespace, reference, &options.tls, options.timeout).await?;
    print_rest(&remote, reference, skip).await?;
    Ok(Outcome::Success)
}

/// The whole log of a backup or restore that has ended.
pub async fn fetch_all(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<String> {
    let remote = Remote::of(client, namespace, reference, &TlsOptions::default(), URL_TIMEOUT).await?;
    let operation = Operation::new(format!("log of {reference}"), Clock::system());
    let mut unpacked = MultiGzDecoder::new(Vec::new());
    match remote.fetch(&file_of(reference), &operation.root(), |piece| unpacked.write_all(piece)).await {
        Err(error) if error.is::<MissingFile>() => bail!("{reference} has no log: it ended before the log was stored"),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    Ok(String::from_utf8_lossy(&unpacked.finish().context("the log file is corrupt")?).into_owned())
}

fn file_of(reference: &Reference) -> DownloadTargetKind {
    match reference.kind {
        ResourceKind::Restore => DownloadTargetKind::RestoreLog,
        _ => DownloadTargetKind::BackupLog,
    }
}

async fn print_rest(remote: &Remote, reference: &Reference, skip: u64) -> anyhow::Result<()> {
    let file = file_of(reference);
    let operation = Operation::new(format!("log of {reference}"), Clock::system());
    let root = operation.root();
    let mut unpacked = MultiGzDecoder::new(SkipWriter { skip, out: std::io::stdout() });
    let fetch = remote.fetch(&file, &root, |piece| unpacked.write_all(piece));
    match ProgressDisplay::on_terminal_only().show_while(&operation, fetch).await {
        Err(error) if error.is::<MissingFile>() => bail!("{reference} has no log: it ended before the log was stored"),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    unpacked.finish().context("the log file is corrupt")?.flush()?;
    Ok(())
}

/// Skips the bytes that are printed already.
struct SkipWriter<W> {
    skip: u64,
    out: W,
}

impl<W: Write> Write for SkipWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        self.out.write_all(&bytes[skipped..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// The attempt and the number of bytes of its log that are printed.
#[derive(Debug, Default, PartialEq)]
pub struct LogPosition {
    attempt: Option<i64>,
    bytes: u64,
}

impl LogPosition {
    /// The rest of a log of which only this end is kept, and the number of bytes before it that are lost.
    pub fn remaining(&mut self, attempt: Option<i64>, kept: &LogTail) -> (u64, String) {
        if self.attempt != attempt {
            *self = Self { attempt, bytes: 0 };
        }
        let before = self.bytes;
        let offset = u64::try_from(kept.offset.unwrap_or(0)).unwrap_or(0);
        (offset.saturating_sub(before), self.advance(attempt, kept).1.to_owned())
    }

    /// The new part of a tail, and a note to print before it.
    fn advance<'a>(&mut self, attempt: Option<i64>, tail: &'a LogTail) -> (Option<String>, &'a str) {
        let mut note = None;
        if self.attempt != attempt {
            let first = self.attempt.is_none();
            *self = Self { attempt, bytes: 0 };
            note =
                (!first).then(|| "another server resumed the operation; its log starts from the beginning".to_owned());
        }
        let text = tail.text.as_deref().unwrap_or_default();
        let offset = u64::try_from(tail.offset.unwrap_or(0)).unwrap_or(0);
        let missed = offset.saturating_sub(self.bytes);
        if missed > 0 {
            note = Some(format!("{missed} bytes were missed; they are in the complete log at the end"));
        }
        let known = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX).min(text.len());
        self.bytes = self.bytes.max(offset + text.len() as u64);
        (note, text.get(known..).unwrap_or_default())
    }
}

/// Prints what the server logs, until it has ended.
pub async fn follow(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<LogPosition> {
    let api: Api<OperationObject> = Api::namespaced(client.clone(), namespace);
    let operations = watcher::watch_object(api, &subjects::operation_name(reference))
        .filter_map(|event| async { event.ok().map(|operation| WatchEvent::Operation(operation.map(Box::new))) });
    let subject = watcher::watch_object(reference.kind.api(client, namespace), &reference.name)
        .filter_map(|event| async { event.ok().map(|object| WatchEvent::Subject(object.map(Box::new))) });
    let mut news = std::pin::pin!(stream::select(operations.boxed(), subject.boxed()));
    let mut printed = LogPosition::default();
    while let Some(item) = news.next().await {
        match item {
            WatchEvent::Operation(Some(operation)) => print_tail(&mut printed, &operation),
            WatchEvent::Subject(Some(object)) if Subject::new(reference.kind, &object)?.outcome().is_some() => break,
            WatchEvent::Subject(None) => bail!("{reference} was deleted while its log was followed"),
            _ => {}
        }
    }
    Ok(printed)
}

enum WatchEvent {
    Operation(Option<Box<OperationObject>>),
    Subject(Option<Box<kube::api::DynamicObject>>),
}

fn print_tail(printed: &mut LogPosition, operation: &OperationObject) {
    let Some(status) = &operation.status else { return };
    let Some(tail) = &status.log else { return };
    let (note, text) = printed.advance(status.attempt, tail);
    if let Some(note) = note {
        tracing::warn!("{note}");
    }
    if !text.is_empty() {
        output::line(text.trim_end_matches('\n'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(offset: i64, text: &str) -> LogTail {
        LogTail { offset: Some(offset), text: Some(text.to_owned()), ..LogTail::default() }
    }

    #[test]
    fn every_byte_of_a_growing_log_is_printed_once() {
        let mut printed = LogPosition::default();
        assert_eq!(printed.advance(Some(1), &tail(0, "one\n")), (None, "one\n"));
        assert_eq!(printed.advance(Some(1), &tail(0, "one\ntwo\n")), (None, "two\n"));
        assert_eq!(printed.advance(Some(1), &tail(4, "two\nthree\n")), (None, "three\n"));
        assert_eq!(printed.advance(Some(1), &tail(4, "two\nthree\n")), (None, ""));
        assert_eq!(printed, LogPosition { attempt: Some(1), bytes: 14 });
    }

    #[test]
    fn the_end_of_a_log_whose_beginning_is_not_kept_is_printed_to_its_end() {
        let kept = tail(100, "four\nfive\n");
        let rest = |attempt, bytes| LogPosition { attempt, bytes }.remaining(Some(1), &kept);
        assert_eq!(rest(Some(1), 105), (0, "five\n".to_owned()), "the rest of what was followed");
        assert_eq!(rest(Some(1), 110), (0, String::new()));
        assert_eq!(rest(Some(1), 90), (10, "four\nfive\n".to_owned()));
        assert_eq!(rest(None, 0), (100, "four\nfive\n".to_owned()), "it was not followed");
        assert_eq!(rest(Some(7), 110), (100, "four\nfive\n".to_owned()), "of another server's log nothing is known");
    }

    #[test]
    fn missed_bytes_and_a_restarted_log_are_reported() {
        let mut printed = LogPosition { attempt: Some(1), bytes: 4 };
        let (late, again) = (tail(10, "late\n"), tail(0, "again\n"));
        let (note, text) = printed.advance(Some(1), &late);
        assert_eq!(
            (note.unwrap().as_str(), text),
            ("6 bytes were missed; they are in the complete log at the end", "late\n")
        );
        let (note, text) = printed.advance(Some(2), &again);
        assert!(note.unwrap().contains("another server") && text == "again\n");
        assert_eq!(printed, LogPosition { attempt: Some(2), bytes: 6 });
    }

    #[test]
    fn the_file_is_printed_from_where_following_ended() {
        let mut out = SkipWriter { skip: 4, out: Vec::new() };
        out.write_all(b"one").unwrap();
        out.write_all(b"\ntwo\n").unwrap();
        assert_eq!(out.out, b"two\n");
    }
}
