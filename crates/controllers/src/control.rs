//! What the small controllers have in common: watch one kind, look at each object, come back when told to.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource};
use plimsoll_engine::Error;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::context::Context;
use crate::watch_backoff::WatchBackoff;

/// A kind that a small controller can watch.
pub trait Watched:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The objects of a kind that this server serves.
pub fn api<K: Watched>(context: &Context) -> Api<K> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

/// Looks at every object of a kind when it changes and when its time has come, until the future is dropped.
pub async fn control<K, F, R>(context: Arc<Context>, reconcile: R)
where
    K: Watched,
    K::DynamicType: Debug + Eq + Hash + Clone + Default,
    R: FnMut(Arc<K>, Arc<Context>) -> F,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    Controller::new(api::<K>(&context), watcher::Config::default())
        .trigger_backoff(WatchBackoff::default())
        .with_config(Config::default().concurrency(10))
        .run(reconcile, retry, context)
        .for_each(|_| async {})
        .await;
}

#[expect(clippy::needless_pass_by_value, reason = "what a controller calls")]
fn retry<K: Watched>(object: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    let name = object.meta().name.as_deref().unwrap_or_default();
    warn!("{} {name}: {error}", K::kind(&()));
    Action::requeue(Duration::from_secs(5))
}

/// How long from `now` until `then`; nothing if that is past.
pub fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

/// So much later.
pub fn after(time: Timestamp, pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    time.checked_add(pause).unwrap_or(Timestamp::MAX)
}

/// Deletes an object; one that is gone already is a success.
pub async fn remove<K: Watched>(api: &Api<K>, name: &str, context: &Context) -> Result<(), Error> {
    context.fence.check()?;
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("delete {} {name}", K::kind(&())), error)),
    }
}
