//! Links that our own server serves, for locations whose provider cannot make any: directories.
//!
//! ```text
//!  <base>/downloads/<location>/<key>?expires=<unix seconds>&signature=<HMAC-SHA256 of the three>
//! ```
//!
//! The key of the signature is in a Secret, so that a link survives the server that made it.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use plimsoll_engine::Error;
use sha2::Sha256;

/// The Secret with the key.
const SECRET: &str = "plimsoll-download-links";
/// Its field.
const FIELD: &str = "key";
const ROOT: &str = "/downloads/";

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The BackupStorageLocation.
    pub location: String,
    /// The object in it.
    pub key: String,
}

/// Why a link is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLink {
    /// It is not a link of ours.
    #[error("not a download link")]
    Malformed,
    /// It was changed, or the key has changed.
    #[error("invalid signature of the download link; create a new DownloadRequest")]
    Forged,
    /// It has expired.
    #[error("the download link has expired; create a new DownloadRequest")]
    Expired,
}

/// A link as it was requested: nothing of it is verified.
#[derive(Debug)]
pub struct Link {
    /// Its target.
    pub target: Target,
    expires: i64,
    signature: Vec<u8>,
}

impl Link {
    /// Parses the path and the query of a request.
    pub fn parse(path: &str, query: &str) -> Result<Self, InvalidLink> {
        let (location, key) =
            path.strip_prefix(ROOT).and_then(|rest| rest.split_once('/')).ok_or(InvalidLink::Malformed)?;
        let field = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).ok_or(InvalidLink::Malformed)
        };
        let expires: i64 = field("expires")?.parse().map_err(|_| InvalidLink::Malformed)?;
        let signature = hex::decode(field("signature")?).map_err(|_| InvalidLink::Malformed)?;
        Ok(Self { target: Target { location: location.to_owned(), key: key.to_owned() }, expires, signature })
    }
}

/// Creates and verifies links.
#[derive(Clone)]
pub struct Signer {
    key: Vec<u8>,
}

impl Signer {
    /// With the key of this namespace, if there is one.
    pub async fn find(client: Client, namespace: &str) -> Result<Option<Self>, Error> {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let found = api.get_opt(SECRET).await.map_err(|e| Error::api(format!("read secret {SECRET}"), e))?;
        Ok(found.and_then(|secret| secret.data?.remove(FIELD)).map(|key| Self { key: key.0 }))
    }

    /// With the key of this namespace, made if there is none.
    pub async fn find_or_make(client: Client, namespace: &str) -> Result<Self, Error> {
        loop {
            if let Some(found) = Self::find(client.clone(), namespace).await? {
                return Ok(found);
            }
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            match api.create(&PostParams::default(), &fresh_secret()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(Error::api(format!("create secret {SECRET}"), error)),
            }
        }
    }

    /// Path and query of a link that opens `target` for a while.
    pub fn sign(&self, target: &Target, now: Timestamp, valid_for: Duration) -> String {
        let expires = now.as_second().saturating_add(i64::try_from(valid_for.as_secs()).unwrap_or(i64::MAX));
        let signature = hex::encode(self.mac(target, expires).finalize().into_bytes());
        format!("{ROOT}{}/{}?expires={expires}&signature={signature}", target.location, target.key)
    }

    /// Verifies a link.
    pub fn verify(&self, link: &Link, now: Timestamp) -> Result<(), InvalidLink> {
        // Compares in constant time.
        self.mac(&link.target, link.expires).verify_slice(&link.signature).map_err(|_| InvalidLink::Forged)?;
        if now.as_second() > link.expires { Err(InvalidLink::Expired) } else { Ok(()) }
    }

    fn mac(&self, target: &Target, expires: i64) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        mac.update(format!("{}\n{}\n{expires}", target.location, target.key).as_bytes());
        mac
    }
}

fn fresh_secret() -> Secret {
    let key: [u8; 32] = rand::random();
    Secret {
        metadata: ObjectMeta { name: Some(SECRET.into()), ..ObjectMeta::default() },
        data: Some([(FIELD.to_owned(), ByteString(key.to_vec()))].into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        Signer { key: b"of this test".to_vec() }
    }

    fn link() -> (String, String) {
        let target = Target { location: "default".into(), key: "backups/b/b.tar.gz".into() };
        let link = signer().sign(&target, Timestamp::UNIX_EPOCH, Duration::from_mins(10));
        let (path, query) = link.split_once('?').unwrap();
        (path.to_owned(), query.to_owned())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn open(signer: &Signer, path: &str, query: &str, now: Timestamp) -> Result<Target, InvalidLink> {
        let link = Link::parse(path, query)?;
        signer.verify(&link, now).map(|()| link.target)
    }

    #[test]
    fn a_link_opens_what_it_was_made_for_until_it_expires() {
        let (path, query) = link();
        let opened = open(&signer(), &path, &query, at(600)).unwrap();
        assert_eq!(opened, Target { location: "default".into(), key: "backups/b/b.tar.gz".into() });
        assert_eq!(open(&signer(), &path, &query, at(601)), Err(InvalidLink::Expired));
    }

    #[test]
    fn a_changed_link_opens_nothing() {
        let (path, query) = link();
        let cases = [
            (path.replace("b.tar.gz", "velero-backup.json"), query.clone(), InvalidLink::Forged),
            (path.replace("default", "other"), query.clone(), InvalidLink::Forged),
            (path.clone(), query.replace("expires=600", "expires=6000"), InvalidLink::Forged),
            (path.clone(), query.replace("signature=", "signature=zz"), InvalidLink::Malformed),
            (path.clone(), "expires=600".into(), InvalidLink::Malformed),
            ("/elsewhere".into(), query.clone(), InvalidLink::Malformed),
        ];
        for (path, query, refusal) in cases {
            assert_eq!(open(&signer(), &path, &query, at(1)), Err(refusal), "{path}?{query}");
        }
        assert_eq!(open(&Signer { key: b"another".to_vec() }, &path, &query, at(1)), Err(InvalidLink::Forged));
    }
}
