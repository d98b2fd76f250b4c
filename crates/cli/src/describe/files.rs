//! What the files of a backup or restore add to its description. A file that cannot be read is reported, and is no error.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use futures::future::OptionFuture;
use kube::Client;
use plimsoll_api::velero::v1::DownloadTargetKind;
use plimsoll_archive::results::Results;
use plimsoll_progress::Task;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{URL_TIMEOUT, item_operations};
use crate::args::names::{Reference, ResourceKind};
use crate::args::options::DescribeOptions;
use crate::errors;
use crate::plugin_transfer::{self, PluginTransfer};
use crate::remote::{MissingFile, Remote};
use crate::subjects::{self, Subject};
use crate::transfer::{self, Transfer, TransferFilter};

/// Nothing that one would want described is larger than this.
const MAX_FILE_SIZE: u64 = 1 << 30;

/// The files of a backup or restore.
#[derive(Debug, Default)]
pub struct Files {
    /// Errors and warnings.
    pub results: Option<Results>,
    /// Items by kind.
    pub items: Option<BTreeMap<String, Vec<String>>>,
    /// Volumes.
    pub volumes: Option<Vec<Value>>,
    /// Item operations.
    pub item_operations: Option<Vec<Value>>,
    /// Transfers of volume data.
    pub transfers: Vec<Transfer>,
    /// Operations of plugins.
    pub plugin_transfer: Vec<PluginTransfer>,
    /// Items of the backup that a restore is from.
    pub backup_items: Option<u64>,
    /// Files that could not be read, with the reason.
    pub notes: Vec<String>,
}

/// Fetches what this description needs, all at once.
pub async fn gather(
    client: &Client,
    namespace: &str,
    subject: &Subject,
    options: &DescribeOptions,
    task: Task,
) -> Files {
    let mut files = Files { backup_items: backup_items(client, namespace, subject).await, ..Files::default() };
    let of = if subject.kind == ResourceKind::Restore {
        TransferFilter::Restore(subject.name())
    } else {
        TransferFilter::Backup(subject.name())
    };
    match transfer::list_pod_volumes(client, namespace, of).await {
        Ok(found) => files.transfers = found,
        Err(error) => files.notes.push(errors::cause_text(&error)),
    }
    match transfer::list_data_movements(client, namespace, of).await {
        Ok(found) => files.transfers.extend(found),
        Err(error) => files.notes.push(errors::cause_text(&error)),
    }
    match plugin_transfer::list(client, namespace, of).await {
        Ok(found) => files.plugin_transfer = found,
        Err(error) => files.notes.push(errors::cause_text(&error)),
    }
    // The server writes the file of item operations while these run; all others when the subject has ended.
    let has_operations = options.details && item_operations::attempted(subject) > 0;
    let ended = subject.outcome().is_some() && subject.phase() != "FailedValidation";
    let has_messages = ended && subject.number("/status/errors") + subject.number("/status/warnings") > 0;
    let details = ended && options.details;
    if !has_operations && !has_messages && !details {
        return files;
    }
    let remote = match Remote::of(client, namespace, &subject.reference(), &options.tls, URL_TIMEOUT).await {
        Ok(remote) => remote,
        Err(error) => return Files { notes: vec![errors::cause_text(&error)], ..files },
    };
    let FileKinds { results, items, volumes, operations } = FileKinds::of(subject.kind);
    let (results, list, volumes, operations) = tokio::join!(
        run_if(has_messages, read::<Results>(&remote, &results, &task)),
        run_if(details, read::<BTreeMap<String, Vec<String>>>(&remote, &items, &task)),
        run_if(details, read::<Option<Vec<Value>>>(&remote, &volumes, &task)),
        run_if(has_operations, read::<Option<Vec<Value>>>(&remote, &operations, &task)),
    );
    files.results = files.ok_or_note("errors and warnings", results);
    files.items = files.ok_or_note("the list of items", list);
    files.volumes = files.ok_or_note("volumes", volumes).flatten();
    files.item_operations = files.ok_or_note("item operations", operations).flatten();
    files
}

async fn run_if<T>(wanted: bool, work: impl Future<Output = T>) -> Option<T> {
    OptionFuture::from(wanted.then_some(work)).await
}

impl Files {
    fn ok_or_note<T>(&mut self, what: &str, answer: Option<anyhow::Result<Option<T>>>) -> Option<T> {
        match answer {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                self.notes.push(format!("cannot read {what}: {}", errors::cause_text(&error)));
                None
            }
            None => None,
        }
    }
}

/// The files of a backup or restore that a description reads.
struct FileKinds {
    results: DownloadTargetKind,
    items: DownloadTargetKind,
    volumes: DownloadTargetKind,
    operations: DownloadTargetKind,
}

impl FileKinds {
    fn of(kind: ResourceKind) -> Self {
        use DownloadTargetKind as File;
        match kind {
            ResourceKind::Restore => Self {
                results: File::RestoreResults,
                items: File::RestoreResourceList,
                volumes: File::RestoreVolumeInfo,
                operations: File::RestoreItemOperations,
            },
            _ => Self {
                results: File::BackupResults,
                items: File::BackupResourceList,
                volumes: File::BackupVolumeInfos,
                operations: File::BackupItemOperations,
            },
        }
    }
}

/// A file as JSON; `None` if there is no such file.
async fn read<T: DeserializeOwned>(
    remote: &Remote,
    file: &DownloadTargetKind,
    task: &Task,
) -> anyhow::Result<Option<T>> {
    let mut packed = Vec::new();
    let fetched = remote
        .fetch(file, &task.child(file.as_str()), |piece| {
            packed.extend_from_slice(piece);
            Ok(())
        })
        .await;
    match fetched {
        Err(error) if error.is::<MissingFile>() => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(Some(serde_json::from_reader(MultiGzDecoder::new(packed.as_slice()).take(MAX_FILE_SIZE))?)),
    }
}

/// How many items the backup of a restore holds.
async fn backup_items(client: &Client, namespace: &str, subject: &Subject) -> Option<u64> {
    let name = subject.text("/spec/backupName").filter(|_| subject.kind == ResourceKind::Restore)?.to_owned();
    let backup = subjects::read(client, namespace, &Reference { kind: ResourceKind::Backup, name }).await.ok()?;
    backup.object.pointer("/status/progress/itemsBackedUp").and_then(Value::as_u64)
}
