//! Events: what a user reads in `kubectl describe` and `kubectl get events`. Best effort; nothing waits for them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest, Sha256};
use tracing::debug;

/// Longer messages are cut: the API server refuses them.
const LONGEST: usize = 1000;

/// How grave it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gravity {
    /// Something happened as it should.
    Normal,
    /// Somebody should look at it.
    Warning,
}

impl Gravity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Writes Events of one namespace.
#[derive(Clone)]
pub struct Events {
    api: Api<Event>,
    host: String,
}

impl Events {
    /// For the objects of `namespace`; `host` is who says it.
    pub fn new(client: Client, namespace: &str, host: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), host: host.to_owned() }
    }

    /// Says something about an object. The same words about the same object are counted, not repeated.
    pub async fn say(&self, about: &ObjectReference, gravity: Gravity, reason: &str, message: &str) {
        let event = self.event(about, gravity, reason, message);
        let name = event.metadata.name.clone().unwrap_or_default();
        let answer = match self.api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => self.count(&name).await,
            answer => answer.map(|_| ()),
        };
        if let Err(error) = answer {
            debug!("event {reason} about {}: {error}", about.name.as_deref().unwrap_or_default());
        }
    }

    fn event(&self, about: &ObjectReference, gravity: Gravity, reason: &str, message: &str) -> Event {
        let now = Time(Timestamp::now());
        Event {
            metadata: ObjectMeta { name: Some(name(about, reason, message)), ..ObjectMeta::default() },
            involved_object: about.clone(),
            type_: Some(gravity.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(cut(message).to_owned()),
            source: Some(EventSource { component: Some("plimsoll".into()), host: Some(self.host.clone()) }),
            reporting_component: Some("plimsoll".into()),
            reporting_instance: Some(self.host.clone()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            count: Some(1),
            ..Event::default()
        }
    }

    async fn count(&self, name: &str) -> kube::Result<()> {
        let Some(known) = self.api.get_opt(name).await? else { return Ok(()) };
        let patch =
            json!({ "count": known.count.unwrap_or(1) + 1, "lastTimestamp": format!("{:.0}", Timestamp::now()) });
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
    }
}

/// One name for the same words about the same object.
fn name(about: &ObjectReference, reason: &str, message: &str) -> String {
    let uid = about.uid.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{uid}\n{reason}\n{message}"));
    let object = about.name.as_deref().unwrap_or("unknown");
    format!("{}.{}", &object[..object.len().min(200)].trim_end_matches(['.', '-']), hex::encode(&digest[..8]))
}

fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(LONGEST)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_about_the_same_object_have_one_name() {
        let about = |uid: &str| ObjectReference {
            name: Some("b".into()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        assert_eq!(name(&about("1"), "Ended", "well"), name(&about("1"), "Ended", "well"));
        assert_ne!(name(&about("1"), "Ended", "well"), name(&about("2"), "Ended", "well"));
        assert_ne!(name(&about("1"), "Ended", "well"), name(&about("1"), "Ended", "badly"));
    }

    #[test]
    fn a_long_message_is_cut_at_a_whole_character() {
        assert!(cut(&"é".repeat(600)).len() <= LONGEST);
    }
}
