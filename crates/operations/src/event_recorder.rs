//! Events: what a user reads in `kubectl describe` and `kubectl get events`. Best effort; nothing waits for them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plimsoll_progress::Token;
use serde_json::json;
use sha2::{Digest, Sha256};
use tracing::debug;

/// Longer messages are cut: the API server refuses them.
const MAX_MESSAGE_LENGTH: usize = 1000;
/// The annotation with the token of the progress tree at the time of the Event.
pub const TOKEN_ANNOTATION: &str = "plimsoll.dev/token";

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as it should.
    Normal,
    /// Needs attention.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Records Events of one namespace.
#[derive(Clone)]
pub struct EventRecorder {
    api: Api<Event>,
    host: String,
}

impl EventRecorder {
    /// For the objects of `namespace`; `host` is the reporting instance.
    pub fn new(client: Client, namespace: &str, host: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), host: host.to_owned() }
    }

    /// Records an Event about an object. The same message about the same object is counted, not repeated.
    pub async fn record(&self, about: &ObjectReference, event_type: EventType, reason: &str, message: &str) {
        self.record_at(about, event_type, reason, message, None).await;
    }

    /// The same, with the token of the tree that it speaks of as an annotation.
    pub async fn record_at(
        &self,
        about: &ObjectReference,
        event_type: EventType,
        reason: &str,
        message: &str,
        token: Option<Token>,
    ) {
        let mut event = self.event(about, event_type, reason, message);
        event.metadata.annotations = token.map(|token| [(TOKEN_ANNOTATION.to_owned(), token.to_string())].into());
        let name = event.metadata.name.clone().unwrap_or_default();
        let answer = match self.api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => self.increment_count(&name).await,
            answer => answer.map(|_| ()),
        };
        if let Err(error) = answer {
            debug!("event {reason} about {}: {error}", about.name.as_deref().unwrap_or_default());
        }
    }

    fn event(&self, about: &ObjectReference, event_type: EventType, reason: &str, message: &str) -> Event {
        let now = Time(Timestamp::now());
        Event {
            metadata: ObjectMeta { name: Some(name(about, reason, message)), ..ObjectMeta::default() },
            involved_object: about.clone(),
            type_: Some(event_type.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(truncate(message).to_owned()),
            source: Some(EventSource { component: Some("plimsoll".into()), host: Some(self.host.clone()) }),
            reporting_component: Some("plimsoll".into()),
            reporting_instance: Some(self.host.clone()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            count: Some(1),
            ..Event::default()
        }
    }

    async fn increment_count(&self, name: &str) -> kube::Result<()> {
        let Some(known) = self.api.get_opt(name).await? else { return Ok(()) };
        let patch =
            json!({ "count": known.count.unwrap_or(1) + 1, "lastTimestamp": format!("{:.0}", Timestamp::now()) });
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
    }
}

/// The same name for the same message about the same object.
fn name(about: &ObjectReference, reason: &str, message: &str) -> String {
    let uid = about.uid.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{uid}\n{reason}\n{message}"));
    let object = about.name.as_deref().unwrap_or("unknown");
    format!("{}.{}", &object[..object.len().min(200)].trim_end_matches(['.', '-']), hex::encode(&digest[..8]))
}

fn truncate(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE_LENGTH)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_about_the_same_object_has_one_name() {
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
        assert!(truncate(&"é".repeat(600)).len() <= MAX_MESSAGE_LENGTH);
    }
}
