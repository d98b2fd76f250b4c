//! The Secret with the key that proves which backups this cluster made.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use plimsoll_api::labels;
use plimsoll_archive::proof::ProofKey;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::LeaderClient;
use tracing::info;

/// The name of the Secret. A backup never contains it: the key stays in the cluster.
const SECRET: &str = "plimsoll-backup-proof";
const FIELD: &str = "key";

/// The key; `None` if there is no Secret.
pub async fn find(leader: &LeaderClient) -> Result<Option<ProofKey>, Error> {
    let found = leader.api::<Secret>().get_opt(SECRET).await;
    let Some(found) = found.map_err(|e| Error::api(format!("read secret {SECRET}"), e))? else { return Ok(None) };
    let key = found.data.and_then(|mut data| data.remove(FIELD)).and_then(|key| ProofKey::new(key.0));
    key.map(Some).ok_or_else(|| {
        Error::Selection(format!(
            "secret {}/{SECRET} has no key {FIELD} of at least {} bytes; restore it from a copy, or delete it",
            leader.namespace,
            ProofKey::LENGTH
        ))
    })
}

/// The key; it is generated if there is no Secret.
pub async fn find_or_create(leader: &LeaderClient) -> Result<ProofKey, Error> {
    loop {
        if let Some(found) = find(leader).await? {
            return Ok(found);
        }
        leader.fence.check()?;
        kill::point("proof.secret.before");
        match leader.api::<Secret>().create(&PostParams::default(), &new_secret()).await {
            Ok(_) => info!("created secret {}/{SECRET}", leader.namespace),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api(format!("create secret {SECRET}"), error)),
        }
    }
}

fn new_secret() -> Secret {
    let key: [u8; ProofKey::LENGTH] = rand::random();
    let marks = [(labels::EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned())];
    Secret {
        metadata: ObjectMeta { name: Some(SECRET.into()), labels: Some(marks.into()), ..ObjectMeta::default() },
        data: Some([(FIELD.to_owned(), ByteString(key.to_vec()))].into()),
        ..Secret::default()
    }
}
