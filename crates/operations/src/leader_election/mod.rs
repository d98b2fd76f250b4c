//! Leader election: one leader, identified by an epoch, stopped by a fence.
//!
//! # Guarantees
//! - At most one process believes it leads, as long as clocks *run* at about the same speed. What they *show* does not matter: a
//!   candidate waits until it has itself seen the Lease unchanged for its whole term.
//! - Every term has a larger epoch than the one before.
//! - [`Fence::check`] refuses once two thirds of the term have passed without a renewal; at its end [`Leadership::lost`]
//!   resolves, and the process is expected to exit.

mod fence;
mod fenced_client;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use plimsoll_engine::{Error, kill};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::fence::Fence;
pub use self::fenced_client::fence_client;

/// A candidate, and the Lease it wants.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Unique for each process: a restarted pod is another process.
    pub identity: String,
    /// How long a leader may be silent.
    pub term: Duration,
    /// Annotations of the Lease while it leads.
    pub annotations: BTreeMap<String, String>,
}

/// Held by the one process that leads.
pub struct Leadership {
    /// Larger than that of every leader before.
    pub epoch: u64,
    /// Checked before every effect.
    pub fence: Arc<Fence>,
    /// The identity of this process.
    pub identity: String,
    lost: CancellationToken,
    resign: CancellationToken,
    renewing: tokio::task::JoinHandle<()>,
}

impl Leadership {
    /// Resolves when this process no longer leads.
    pub fn lost(&self) -> impl Future<Output = ()> + use<> {
        self.lost.clone().cancelled_owned()
    }

    /// Releases the Lease, so that the next leader need not wait for the end of the term.
    pub async fn resign(self) {
        self.resign.cancel();
        let _ = self.renewing.await;
    }
}

/// Waits until this process leads. `least_epoch` is called when there is no Lease to count from.
pub async fn campaign<F>(client: Client, candidate: Candidate, least_epoch: F) -> Result<Leadership, Error>
where
    F: AsyncFn() -> Result<u64, Error>,
{
    let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
    let mut seen: Option<(String, Instant)> = None;
    loop {
        let requested = Instant::now();
        match attempt(&api, &candidate, &mut seen, &least_epoch).await {
            Ok(Some(lease)) => return Ok(start_leading(api, candidate, &lease, requested)),
            Ok(None) => {}
            Err(error) if error.is_retryable() => warn!("leader election: {error}"),
            Err(error) => return Err(error),
        }
        tokio::time::sleep((candidate.term / 10).clamp(Duration::from_millis(50), Duration::from_secs(2))).await;
    }
}

async fn attempt<F>(
    api: &Api<Lease>,
    candidate: &Candidate,
    seen: &mut Option<(String, Instant)>,
    least_epoch: &F,
) -> Result<Option<Lease>, Error>
where
    F: AsyncFn() -> Result<u64, Error>,
{
    let Some(current) = api.get_opt(&candidate.lease).await.map_err(|e| Error::api("read the Lease", e))? else {
        let lease = new_lease(candidate, least_epoch().await?);
        return claimed(api.create(&PostParams::default(), &lease).await);
    };
    if !is_vacant(&current, seen) {
        return Ok(None);
    }
    let lease = claim_lease(current, candidate);
    claimed(api.replace(&candidate.lease, &PostParams::default(), &lease).await)
}

fn claimed(answer: kube::Result<Lease>) -> Result<Option<Lease>, Error> {
    match answer {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(Error::api("take the Lease", error)),
    }
}

/// Vacant when resigned, or when we have seen the same version of it for its whole term.
fn is_vacant(lease: &Lease, seen: &mut Option<(String, Instant)>) -> bool {
    let spec = lease.spec.as_ref();
    if spec.and_then(|s| s.holder_identity.as_deref()).is_none_or(str::is_empty) {
        return true;
    }
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    let term =
        Duration::from_secs(spec.and_then(|s| s.lease_duration_seconds).unwrap_or(15).max(1).unsigned_abs().into());
    match seen {
        Some((known, since)) if *known == version => since.elapsed() >= term,
        _ => {
            *seen = Some((version, Instant::now()));
            false
        }
    }
}

fn new_lease(candidate: &Candidate, least_epoch: u64) -> Lease {
    let metadata = ObjectMeta {
        name: Some(candidate.lease.clone()),
        namespace: Some(candidate.namespace.clone()),
        ..ObjectMeta::default()
    };
    let transitions = i32::try_from(least_epoch).unwrap_or(i32::MAX - 1);
    let spec = LeaseSpec { lease_transitions: Some(transitions), ..LeaseSpec::default() };
    claim_lease(Lease { metadata, spec: Some(spec) }, candidate)
}

fn claim_lease(mut lease: Lease, candidate: &Candidate) -> Lease {
    lease.metadata.annotations.get_or_insert_default().extend(candidate.annotations.clone());
    let previous = lease.spec.unwrap_or_default();
    let now = MicroTime(Timestamp::now());
    let seconds = i32::try_from(candidate.term.as_secs().max(1)).unwrap_or(i32::MAX);
    let spec = LeaseSpec {
        holder_identity: Some(candidate.identity.clone()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        lease_transitions: Some(previous.lease_transitions.unwrap_or(0).saturating_add(1)),
        ..previous
    };
    Lease { spec: Some(spec), ..lease }
}

fn start_leading(api: Api<Lease>, candidate: Candidate, lease: &Lease, requested: Instant) -> Leadership {
    let transitions = lease.spec.as_ref().and_then(|s| s.lease_transitions).unwrap_or(1);
    let epoch = u64::try_from(transitions).unwrap_or(1);
    let fence = Arc::new(Fence::new(candidate.term, requested));
    let (lost, resign) = (CancellationToken::new(), CancellationToken::new());
    info!(epoch, identity = candidate.identity, "leading");
    kill::point("leader.elected");
    let identity = candidate.identity.clone();
    let renewing = tokio::spawn(renew_until_lost(api, candidate, Arc::clone(&fence), lost.clone(), resign.clone()));
    Leadership { epoch, fence, identity, lost, resign, renewing }
}

async fn renew_until_lost(
    api: Api<Lease>,
    candidate: Candidate,
    fence: Arc<Fence>,
    lost: CancellationToken,
    resigned: CancellationToken,
) {
    tokio::select! {
        () = resigned.cancelled() => {
            fence.close();
            let released = tokio::time::timeout(candidate.term / 3, release_lease(&api, &candidate)).await;
            if released.is_err() {
                warn!("releasing the Lease: no answer within {:?}", candidate.term / 3);
            }
            return;
        }
        () = renew_while_held(&api, &candidate, &fence) => {}
        () = fence.term_ended() => warn!("the Lease was not renewed for its whole term"),
    }
    fence.close();
    lost.cancel();
}

/// Renews the Lease until another process holds it.
async fn renew_while_held(api: &Api<Lease>, candidate: &Candidate, fence: &Fence) {
    loop {
        tokio::time::sleep(candidate.term / 4).await;
        let requested = Instant::now();
        let answer = tokio::time::timeout(candidate.term / 3, renew(api, candidate)).await;
        match answer {
            Ok(Ok(true)) => fence.renew(requested),
            Ok(Ok(false)) => return,
            Ok(Err(error)) => warn!("renewing the Lease: {error}"),
            Err(_) => warn!("renewing the Lease: no answer within {:?}", candidate.term / 3),
        }
    }
}

/// Whether the Lease is still ours.
async fn renew(api: &Api<Lease>, candidate: &Candidate) -> Result<bool, Error> {
    let what = "renew the Lease";
    let Some(mut lease) = api.get_opt(&candidate.lease).await.map_err(|e| Error::api(what, e))? else {
        return Ok(false);
    };
    let spec = lease.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() != Some(&candidate.identity) {
        return Ok(false);
    }
    spec.renew_time = Some(MicroTime(Timestamp::now()));
    match api.replace(&candidate.lease, &PostParams::default(), &lease).await {
        Ok(_) => Ok(true),
        Err(error) => Err(Error::api(what, error)),
    }
}

async fn release_lease(api: &Api<Lease>, candidate: &Candidate) {
    let Ok(Some(mut lease)) = api.get_opt(&candidate.lease).await else { return };
    let spec = lease.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() == Some(&candidate.identity) {
        spec.holder_identity = None;
        let _ = api.replace(&candidate.lease, &PostParams::default(), &lease).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate() -> Candidate {
        Candidate {
            namespace: "velero".into(),
            lease: "plimsoll".into(),
            identity: "a".into(),
            term: Duration::from_secs(15),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn a_successor_replaces_its_own_annotations_and_keeps_the_others() {
        let noted = |value: &str| Candidate { annotations: [("all".into(), value.into())].into(), ..candidate() };
        let mut first = new_lease(&noted("true"), 0);
        first.metadata.annotations.as_mut().unwrap().insert("theirs".into(), "x".into());
        let notes = claim_lease(first, &noted("false")).metadata.annotations.unwrap();
        assert_eq!(notes, [("all".into(), "false".into()), ("theirs".into(), "x".into())].into());
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_lease_is_vacant_only_after_its_term_without_a_change() {
        let mut seen = None;
        let mut lease = new_lease(&candidate(), 0);
        lease.metadata.resource_version = Some("1".into());
        assert!(!is_vacant(&lease, &mut seen));
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(!is_vacant(&lease, &mut seen));
        lease.metadata.resource_version = Some("2".into());
        assert!(!is_vacant(&lease, &mut seen), "a renewal restarts the term");
        tokio::time::advance(Duration::from_secs(15)).await;
        assert!(is_vacant(&lease, &mut seen));
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_vacant_at_once() {
        let mut lease = new_lease(&candidate(), 0);
        lease.spec.as_mut().unwrap().holder_identity = None;
        assert!(is_vacant(&lease, &mut None));
    }

    #[test]
    fn every_succession_raises_the_epoch() {
        let first = new_lease(&candidate(), 7);
        assert_eq!(first.spec.as_ref().unwrap().lease_transitions, Some(8));
        let second = claim_lease(first, &candidate());
        assert_eq!(second.spec.unwrap().lease_transitions, Some(9));
    }
}
