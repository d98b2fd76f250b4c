//! Moves the data, as often as it takes, each time in one of the node's slots.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_engine::kill;
use plimsoll_mover::{Job, MoverError, Outcome, Work, spawn_at};
use plimsoll_progress::{Graft, Wait};
use plimsoll_store::RetryPolicy;
use plimsoll_volumes::transfer::{Transfer, TransferError};
use serde_json::json;
use tracing::info;

use super::attempt_count::{attempts, boot_id, failed_attempts, is_empty, is_resumed, number};
use super::prepare::Prepared;
use super::{POLL_INTERVAL, Run};
use crate::decide::MAX_ATTEMPTS;
use crate::slots::Slot;
use crate::volume_io::on_volume;

/// The pauses between attempts. The longest is short: a transfer should not wait much longer than the lock it waits for is held.
/// The number of failed attempts and the timeout of the Backup or Restore limit the retries.
const ATTEMPT_PAUSES: RetryPolicy =
    RetryPolicy { initial_pause: Duration::from_secs(2), max_pause: Duration::from_secs(15), timeout: Duration::MAX };

impl<T: Transfer> Run<'_, T> {
    /// Attempts to move the data until it succeeds, or fails too often. During a pause other transfers use the slot.
    pub(super) async fn move_until_done(&self) -> Result<Outcome, TransferError> {
        let (mut retries, mut lock) = (0, None);
        loop {
            self.wait_for_wait_container().await?;
            let slot = self.slot().await?;
            let (failures, answer) = self.attempt_after_lock(&mut lock).await?;
            drop(slot);
            let error = match answer {
                // Waiting for another process's lock is no attempt: the parent's own timeout limits it.
                Err(error) if error.is_locked_out() => self.uncount_locked_attempt().await.map(|()| error)?,
                Err(error) if error.is_retryable() && failures < MAX_ATTEMPTS => error,
                answer => return answer,
            };
            info!("{} {}: {error}; trying again", T::kind(&()), self.record.name());
            self.root.hint(error.to_string());
            let waiting = self.root.wait(format!("trying again: {}", error.message()));
            drop(lock.take());
            retries += 1;
            self.unless_cancelled(tokio::time::sleep(ATTEMPT_PAUSES.pause_after(retries))).await?;
            lock = error.is_locked_out().then_some(waiting);
        }
    }

    /// An attempt after one that another process's lock refused. The holder of the lock is shown until this attempt has passed it:
    /// most attempts are refused again.
    async fn attempt_after_lock(
        &self,
        lock: &mut Option<Wait>,
    ) -> Result<(u32, Result<Outcome, TransferError>), TransferError> {
        let passed_lock = async {
            while lock.is_some() {
                tokio::time::sleep(POLL_INTERVAL).await;
                // No mover counts anything before it has passed the locks of its repository.
                lock.take_if(|_| self.mover.get().is_some_and(Graft::has_counted));
            }
            std::future::pending().await
        };
        tokio::select! {
            answer = self.attempt() => answer,
            never = passed_lock => never,
        }
    }

    /// Records that a lock refused an attempt before it could do anything.
    async fn uncount_locked_attempt(&self) -> Result<(), TransferError> {
        let counted = |current: &T| {
            let locked_out = (number(current, labels::LOCKED_ATTEMPTS) + 1).to_string();
            json!({ "metadata": { "annotations": { labels::LOCKED_ATTEMPTS: locked_out } } })
        };
        let written = self.record.change(&self.root, counted).await?;
        written.map(|_| ()).ok_or(TransferError::Cancelled)
    }

    /// Acquires one of this node's slots. While all are in use the transfer is accepted, and shows what it waits for.
    async fn slot(&self) -> Result<Slot, TransferError> {
        let request = match self.services.slots.request().try_acquire() {
            Ok(slot) => return Ok(slot),
            Err(request) => request,
        };
        let (node, most) = (&self.services.settings.node, self.services.settings.concurrency);
        let _waiting = self.root.wait_in_queue(format!("waiting for one of {most} transfers on node {node} to end"));
        self.accept().await?;
        let slot = self.unless_cancelled(request.acquire()).await?;
        slot.map_err(|_| TransferError::Cancelled)
    }

    async fn accept(&self) -> Result<(), TransferError> {
        let node = &self.services.settings.node;
        let accepted = |current: &T| {
            if current.phase() != TransferPhase::New {
                return json!({});
            }
            let mut status = T::start_status(Path::new(""), node);
            if let Some(fields) = status.as_object_mut() {
                fields.retain(|_, value| value != "");
            }
            status["phase"] = json!(TransferPhase::Accepted.as_str());
            status["acceptedTimestamp"] = json!(format!("{:.0}", Timestamp::now()));
            json!({ "status": status })
        };
        let written = self.record.change(&self.root, accepted).await?;
        written.map(|_| ()).ok_or(TransferError::Cancelled)
    }

    /// Runs one attempt. Returns the number of failed attempts if it fails, and its result.
    async fn attempt(&self) -> Result<(u32, Result<Outcome, TransferError>), TransferError> {
        let prepared = self.unless_cancelled(Box::pin(self.prepare())).await?;
        let Prepared { directory, mut job, volume_path: _volume_path, cache: _cache } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Ok((MAX_ATTEMPTS, Err(error))),
        };
        let boot = matches!(job.work, Work::Restore(_)).then(boot_id).flatten();
        let written = self.begin(&directory, boot.as_deref()).await?;
        job.epoch = attempts(&written).into();
        if let Work::Restore(restore) = &mut job.work {
            restore.resumed = is_resumed(&written, boot.as_deref());
        }
        let settled = match self.move_data(&job).await {
            Ok(outcome) => self.confirm_moved(&directory, outcome).await,
            Err(error) => Err(error),
        };
        Ok((failed_attempts(&written), settled))
    }

    /// Records the start of an attempt, and for a restore the boot at which the volume was empty. Returns the written transfer.
    async fn begin(&self, directory: &Path, boot: Option<&str>) -> Result<T, TransferError> {
        kill::point("transfer.begin.before");
        let now = format!("{:.0}", Timestamp::now());
        let node = &self.services.settings.node;
        let volume = directory.to_owned();
        let was_empty = on_volume(move || is_empty(&volume)).await?;
        let begun = |current: &T| {
            let mut status = T::start_status(directory, node);
            status["phase"] = json!(TransferPhase::InProgress.as_str());
            if ![TransferPhase::InProgress, TransferPhase::Canceling].contains(&current.phase()) {
                status["startTimestamp"] = json!(now);
            }
            let before = attempts(current);
            let mut annotations = json!({ labels::ATTEMPTS: (before + 1).to_string() });
            if let Some(boot) = boot.filter(|_| before == 0 && was_empty) {
                annotations[labels::RESTORE_BOOT_ID] = json!(boot);
            }
            json!({ "metadata": { "annotations": annotations }, "status": status })
        };
        let written = self.record.change(&self.root, begun).await?.ok_or(TransferError::Cancelled)?;
        kill::point("transfer.begin.after");
        Ok(written)
    }

    async fn move_data(&self, job: &Job) -> Result<Outcome, TransferError> {
        let place = self.mover.get_or_init(|| self.root.graft(job.kind.name()));
        let transfer = spawn_at(&self.services.settings.launch, job, place)?;
        let canceller = transfer.canceller();
        let cancelled = async {
            self.cancel.cancelled().await;
            canceller.cancel();
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = transfer.wait() => answer,
            () = cancelled => Err(MoverError::Cancelled),
        };
        match answer {
            Err(MoverError::Cancelled) => Err(TransferError::Cancelled),
            answer => Ok(answer?),
        }
    }
}
