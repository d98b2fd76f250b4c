//! What the controllers without an Operation have in common: watch one kind, reconcile each object, reconcile again when due.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, watcher};
use plimsoll_engine::Error;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::leader_client::LeaderClient;
use crate::panics::catch_panic;
use crate::watch_backoff::WatchBackoff;

/// A kind that a controller can watch.
pub trait NamespacedResource:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> NamespacedResource for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Reconciles every object of a kind when it changes and when it is due, until the future is dropped.
pub async fn run_controller<K, C, F, R>(leader: &LeaderClient, context: Arc<C>, mut reconcile: R)
where
    K: NamespacedResource,
    C: Send + Sync + 'static,
    R: FnMut(Arc<K>, Arc<C>) -> F,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    // A panic is the error of its object, not the end of the controller.
    let reconcile_safely = move |object: Arc<K>, context| {
        let what = format!("{} {}", K::kind(&()), object.meta().name.as_deref().unwrap_or_default());
        let reconciling = reconcile(object, context);
        async move { catch_panic(&what, reconciling).await }
    };
    Controller::new(leader.api::<K>(), watcher::Config::default())
        .trigger_backoff(WatchBackoff::default())
        .with_config(Config::default().concurrency(10))
        .run(reconcile_safely, retry, context)
        .for_each(|_| async {})
        .await;
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that kube's Controller calls")]
fn retry<K: NamespacedResource, C>(object: Arc<K>, error: &Error, _: Arc<C>) -> Action {
    let name = object.meta().name.as_deref().unwrap_or_default();
    warn!("failed to reconcile {} {name}: {error}", K::kind(&()));
    Action::requeue(Duration::from_secs(5))
}

/// The duration from `now` until `then`; zero if that is past.
pub fn duration_until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

/// The time `duration` after `time`.
pub fn time_after(time: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}
