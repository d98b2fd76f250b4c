//! `plimsoll delete`.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::bail;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, BackupRepository, DeleteBackupRequest, DeleteBackupRequestSpec};

use crate::args::Global;
use crate::args::names::{ResourceKind, Targets};
use crate::args::options::DeleteOptions;
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::subjects::{self, Subject};
use crate::{connect, deletion, output};

/// Deletes the selected objects, after confirmation.
pub async fn run(global: &Global, targets: &Targets, options: &DeleteOptions) -> anyhow::Result<Outcome> {
    let kind = targets.kind;
    if kind == ResourceKind::Operation {
        bail!(UsageError(
            "an operation is deleted with its backup or restore; to end it, use `plimsoll cancel`".into()
        ));
    }
    let client = connect::client(global).await?;
    let chosen =
        subjects::choose(&client, &global.namespace, targets, options.all, options.selector.as_deref()).await?;
    if chosen.is_empty() {
        output::line(format!("no {}s found", kind.word()));
        return Ok(Outcome::Success);
    }
    if !options.confirm && !confirmed(&chosen)? {
        return Ok(Outcome::Success);
    }
    for subject in &chosen {
        delete(&client, &global.namespace, subject).await?;
    }
    let mut outcome = Outcome::Success;
    for subject in chosen.iter().filter(|_| options.wait) {
        if deletion::wait_until_deleted(&client, &global.namespace, subject).await? != Outcome::Success {
            outcome = Outcome::Failed;
        }
    }
    Ok(outcome)
}

fn confirmed(chosen: &[Subject]) -> anyhow::Result<bool> {
    let names: Vec<_> = chosen.iter().map(|subject| subject.reference().to_string()).collect();
    ask_to_continue(&format!("Delete {}?", names.join(", ")))
}

/// Asks on the terminal. Without one, --confirm is required.
#[expect(clippy::print_stderr, reason = "a question is not a result")]
pub fn ask_to_continue(consequence: &str) -> anyhow::Result<bool> {
    eprint!("{consequence}\nAre you sure you want to continue (Y/N)? ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    let is_answered = std::io::stdin().lock().read_line(&mut answer)? > 0;
    if !std::io::stdin().is_terminal() {
        // No line of the user's ended that of the question.
        eprintln!();
    }
    if !is_answered {
        bail!(UsageError("stdin is not a terminal; pass --confirm".into()));
    }
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

async fn delete(client: &Client, namespace: &str, subject: &Subject) -> anyhow::Result<()> {
    let (kind, name) = (subject.kind, subject.name());
    if kind == ResourceKind::Backup {
        request_deletion(client, namespace, subject).await?;
        output::line(format!(
            "backup/{name}: deletion requested, with its files, snapshots and restores; \
             follow it with `plimsoll describe backup/{name}`"
        ));
        return Ok(());
    }
    kind.api(client, namespace).delete(name, &DeleteParams::default()).await?;
    output::line(format!("{}/{name} deleted", kind.word()));
    if kind == ResourceKind::Location {
        delete_contents(client, namespace, name).await?;
    }
    Ok(())
}

/// The server deletes a backup: only the server can reach its files and snapshots.
async fn request_deletion(client: &Client, namespace: &str, subject: &Subject) -> anyhow::Result<()> {
    let name = subject.name();
    let about = [
        (labels::BACKUP_NAME.to_owned(), labels::valid_name(name)),
        (labels::BACKUP_UID.to_owned(), subject.text("/metadata/uid").unwrap_or_default().to_owned()),
    ];
    let request = DeleteBackupRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            labels: Some(about.into()),
            ..ObjectMeta::default()
        },
        spec: DeleteBackupRequestSpec { backup_name: Some(name.to_owned()), ..DeleteBackupRequestSpec::default() },
        status: None,
    };
    let api: Api<DeleteBackupRequest> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &request).await?;
    Ok(())
}

/// Deletes the backups and repositories of a deleted location from the cluster. Their files stay in object storage.
async fn delete_contents(client: &Client, namespace: &str, location: &str) -> anyhow::Result<()> {
    let mine = format!("{}={}", labels::STORAGE_LOCATION, labels::valid_name(location));
    let mine = ListParams::default().labels(&mine);
    let backups: Api<Backup> = Api::namespaced(client.clone(), namespace);
    for backup in backups.list(&mine).await? {
        let name = backup.name_any();
        backups.delete(&name, &DeleteParams::default()).await?;
        output::line(format!("backup/{name} deleted from the cluster; its files stay in object storage"));
    }
    let repositories: Api<BackupRepository> = Api::namespaced(client.clone(), namespace);
    for repository in repositories.list(&mine).await? {
        repositories.delete(&repository.name_any(), &DeleteParams::default()).await?;
    }
    Ok(())
}
