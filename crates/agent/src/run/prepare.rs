//! Prepares an attempt: finds the volume, and opens the repository.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::UploaderType;
use plimsoll_mover::{Job, MoverKind, Repository};
use plimsoll_volumes::transfer::{REPOSITORY_SECRET, Transfer, TransferError, VolumePath};

use super::{POLL_INTERVAL, Run};
use crate::cache::CacheGuard;
use crate::volume_io::on_volume;
use crate::{directory, repository};

/// The built-in mover reports this many times as often: polling other programs costs more.
const BUILT_IN_INTERVAL_DIVISOR: u32 = 4;
/// How long a volume that is not mounted is waited for.
const MOUNT_TIMEOUT: Duration = Duration::from_mins(2);

/// The prepared inputs of an attempt. The path in the volume and the repository's cache are held until the data has been moved.
pub(super) struct Prepared {
    pub directory: PathBuf,
    pub job: Job,
    pub volume_path: VolumePath,
    pub cache: Option<CacheGuard>,
}

impl<T: Transfer> Run<'_, T> {
    /// Finds the volume and the repository.
    pub(super) async fn prepare(&self) -> Result<Prepared, TransferError> {
        let services = self.services;
        let pod = self.pod().await?;
        let directory = self.directory(&pod).await?;
        let kind = mover_kind(self.object)?;
        let opened = self.retry_api_errors(|| self.repository(kind)).await?;
        let cache = services.caches.acquire(&opened);
        let (volume, inner) = (directory.clone(), self.object.inner());
        let inside = on_volume(move || directory::inside(&volume, inner.as_deref())).await??;
        let work = self.object.work(&inside)?;
        let mut job = Job::new(self.record.name(), kind, opened, work);
        job.program = services.settings.program(kind);
        job.cache = cache.as_ref().map(|held| held.path().to_owned());
        let interval = services.settings.progress_interval;
        let interval = if kind == MoverKind::BuiltIn { interval / BUILT_IN_INTERVAL_DIVISOR } else { interval };
        job.interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        job.memory = services.settings.memory;
        job.sharing = services.slots.sharing();
        Ok(Prepared { directory, job, volume_path: inside, cache })
    }

    /// The volume's directory, once it is mounted. Right after the start of a node it may not be.
    pub(super) async fn directory(&self, pod: &Pod) -> Result<PathBuf, TransferError> {
        let (client, settings) = (&self.services.client, &self.services.settings);
        let find = || directory::find(client, &settings.pods_directory, pod, self.object.volume());
        let (mut waiting, since) = (None, tokio::time::Instant::now());
        loop {
            match self.retry_api_errors(find).await {
                Err(error @ TransferError::NotMounted { .. }) if since.elapsed() < MOUNT_TIMEOUT => {
                    waiting.get_or_insert_with(|| self.root.wait(format!("waiting: {error}")));
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                answer => return answer,
            }
        }
    }

    async fn repository(&self, kind: MoverKind) -> Result<Repository, TransferError> {
        let (client, settings) = (&self.services.client, &self.services.settings);
        if let Some(secret) = self.object.annotations().get(REPOSITORY_SECRET) {
            return repository::from_secret(client, &settings.namespace, secret).await;
        }
        let namespace = self.object.repository_namespace();
        repository::open(client, settings, self.object.location(), kind, &namespace).await
    }
}

/// The mover of a transfer.
pub(super) fn mover_kind<T: Transfer>(object: &T) -> Result<MoverKind, TransferError> {
    let wanted = object.annotations().get(labels::MOVER).map(String::as_str);
    match (object.uploader(), wanted) {
        (UploaderType::Kopia, _) => Ok(MoverKind::Kopia),
        (UploaderType::Restic | UploaderType::Unset, Some("restic")) => Ok(MoverKind::Restic),
        (UploaderType::Restic | UploaderType::Unset, _) => Ok(MoverKind::BuiltIn),
        (other, _) => Err(TransferError::Invalid(format!("spec.uploaderType: unknown type {other}"))),
    }
}
