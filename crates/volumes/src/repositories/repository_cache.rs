//! The repositories that one backup or restore needs. An unusable one is retried once for the whole operation, not for each of
//! hundreds of pods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_api::velero::v1::BackupRepository;
use plimsoll_engine::Error;
use plimsoll_progress::Task;
use tokio::sync::OnceCell;

use super::{Repositories, RepositoryKey, require};

/// The repository, or the reason and message of the failure.
type Answer = Result<BackupRepository, (&'static str, String)>;

/// The repositories of one backup or restore, each ensured once.
#[derive(Default)]
pub struct RepositoryCache(Mutex<HashMap<RepositoryKey, Arc<OnceCell<Answer>>>>);

impl RepositoryCache {
    /// A repository that can be used. Other callers wait for the same answer.
    pub async fn get(
        &self,
        repositories: &Repositories,
        key: &RepositoryKey,
        task: &Task,
    ) -> Result<BackupRepository, Error> {
        self.get_by(key, || require(repositories, key, task)).await
    }

    async fn get_by<F: Future<Output = Result<BackupRepository, Error>>>(
        &self,
        key: &RepositoryKey,
        find: impl FnOnce() -> F,
    ) -> Result<BackupRepository, Error> {
        let cell = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default());
        let found = cell.get_or_try_init(|| async {
            match find().await {
                Ok(repository) => Ok(Ok(repository)),
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => Err(error),
                Err(error) => Ok(Err((error.reason(), error.to_string()))),
            }
        });
        match found.await? {
            Ok(repository) => Ok(repository.clone()),
            Err((reason, message)) => Err(Error::Volumes { reason, message: message.clone(), retryable: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use plimsoll_mover::MoverKind;

    use super::*;

    fn failure() -> Error {
        Error::Volumes { reason: "StoreUnreachable", message: "it does not answer".into(), retryable: true }
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_tried_once_for_all_pods_and_other_repositories_on_their_own() {
        let (required, tries) = (RepositoryCache::default(), AtomicU32::new(0));
        let key = |namespace: &str| RepositoryKey::new(namespace, "default", MoverKind::Kopia);
        let fail = || async {
            tries.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Err(failure())
        };
        let shop = key("shop");
        let (one, other) = tokio::join!(required.get_by(&shop, fail), required.get_by(&shop, fail));
        for answer in [one, other, required.get_by(&shop, fail).await] {
            let error = answer.unwrap_err();
            assert_eq!((error.reason(), error.is_retryable()), ("StoreUnreachable", false));
            assert!(error.to_string().contains("it does not answer"), "{error}");
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        assert!(required.get_by(&key("bank"), || async { Ok(BackupRepository::default()) }).await.is_ok());
    }

    #[tokio::test]
    async fn a_cancelled_search_is_no_answer() {
        let (required, key) = (RepositoryCache::default(), RepositoryKey::new("shop", "default", MoverKind::Kopia));
        assert!(required.get_by(&key, || async { Err(Error::Cancelled) }).await.is_err());
        assert!(required.get_by(&key, || async { Ok(BackupRepository::default()) }).await.is_ok());
    }
}
