//! `plimsoll backup download`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use plimsoll_api::velero::v1::DownloadTargetKind;
use plimsoll_progress::{Clock, Operation};

use crate::args::Global;
use crate::args::names::Reference;
use crate::args::options::DownloadOptions;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::remote::Remote;
use crate::{connect, output, subjects};

/// Downloads the contents of a backup into a file. On failure there is no file.
pub async fn run(global: &Global, reference: &Reference, options: &DownloadOptions) -> anyhow::Result<Outcome> {
    let name = &reference.name;
    let path = options.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}-data.tar.gz")));
    if path.exists() && !options.force {
        bail!("{} already exists; pass --force to overwrite it, or -o for another file", path.display());
    }
    let client = connect::client(global).await?;
    subjects::read(&client, &global.namespace, reference).await?;
    let operation = Operation::new(format!("download {reference}"), Clock::system());
    let work = async {
        let remote = Remote::of(&client, &global.namespace, reference, &options.tls, options.timeout).await?;
        save(&remote, &path, &operation).await
    };
    let bytes = ProgressDisplay::new().show_while(&operation, work).await?;
    output::line(format!("{reference} downloaded to {} ({bytes} bytes)", path.display()));
    Ok(Outcome::Success)
}

async fn save(remote: &Remote, path: &Path, operation: &Operation) -> anyhow::Result<u64> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".plimsoll-download-")
        .tempfile_in(directory)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    let bytes =
        remote.fetch(&DownloadTargetKind::BackupContents, &operation.root(), |piece| file.write_all(piece)).await?;
    file.as_file().sync_all().context("cannot write the file")?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(bytes)
}
