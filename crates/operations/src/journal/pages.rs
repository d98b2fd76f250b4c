//! The ConfigMaps of a journal: one line of JSON for each entry.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, IntentId, JournalEntry};
use serde::{Deserialize, Serialize};

use super::{JournalLocation, journal_lost};
use crate::record_version;

pub(super) const LABEL: &str = "plimsoll.dev/journal-of";
pub(super) const KEY: &str = "entries";

/// A line of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    Intent { id: u64, effect: Effect },
    Settled { id: u64, result: String },
}

/// The pages of this subject, in order. Pages of an earlier subject of the same name are deleted.
pub(super) async fn load(api: &Api<ConfigMap>, location: &JournalLocation) -> Result<Vec<ConfigMap>, Error> {
    let label = plimsoll_api::labels::valid_name(&location.operation);
    let list = api
        .list(&ListParams::default().labels(&format!("{LABEL}={label}")))
        .await
        .map_err(|e| Error::api(format!("read the journal of {}", location.operation), e))?;
    let mut pages = Vec::new();
    for page in list {
        if page.owner_references().iter().any(|owner| owner.uid == location.owner.uid) {
            record_version::check(&format!("the journal of {}", location.operation), &page.metadata)?;
            pages.push(page);
        } else {
            let _ = api.delete(&page.name_any(), &DeleteParams::default()).await;
        }
    }
    pages.sort_by_key(|page| page_number(&page.name_any()));
    for (index, page) in pages.iter().enumerate() {
        if page_number(&page.name_any()) != Some(index) {
            return Err(journal_lost(&location.operation, format!("page {index} is missing")));
        }
    }
    Ok(pages)
}

fn page_number(name: &str) -> Option<usize> {
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok())
}

/// The entries of all pages.
pub(super) fn read(operation: &str, pages: &[ConfigMap]) -> Result<Vec<JournalEntry>, Error> {
    let mut known: BTreeMap<u64, JournalEntry> = BTreeMap::new();
    let lines = pages.iter().filter_map(|p| p.data.as_ref()?.get(KEY)).flat_map(|text| text.lines());
    for line in lines {
        match serde_json::from_str(line)
            .map_err(|e| journal_lost(operation, format!("entry {line:?} cannot be read: {e}")))?
        {
            Line::Intent { id, effect } => {
                known.insert(id, JournalEntry { id: IntentId(id), effect, result: None });
            }
            Line::Settled { id, result } => {
                let intent = known.get_mut(&id);
                intent
                    .ok_or_else(|| journal_lost(operation, format!("entry {id} has a result but no intent")))?
                    .result = Some(result);
            }
        }
    }
    Ok(known.into_values().collect())
}

/// Creates an empty page.
pub(super) async fn create_page(
    api: &Api<ConfigMap>,
    location: &JournalLocation,
    number: usize,
) -> Result<ConfigMap, Error> {
    let name = format!("{}-{number}", location.operation);
    let mut page = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(location.namespace.clone()),
            labels: Some([(LABEL.to_owned(), plimsoll_api::labels::valid_name(&location.operation))].into()),
            owner_references: Some(vec![location.owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), String::new())].into()),
        ..ConfigMap::default()
    };
    record_version::mark(&mut page.metadata);
    api.create(&PostParams::default(), &page).await.map_err(|e| Error::api(format!("create ConfigMap {name}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> ConfigMap {
        ConfigMap { data: Some([(KEY.to_owned(), text.to_owned())].into()), ..ConfigMap::default() }
    }

    fn line(entry: &Line) -> String {
        serde_json::to_string(entry).unwrap() + "\n"
    }

    fn begin() -> Effect {
        Effect::Begin { prefix: "backups/x/".into() }
    }

    #[test]
    fn an_intent_without_a_result_is_known_as_open() {
        let text = line(&Line::Intent { id: 3, effect: begin() });
        assert_eq!(
            read("backup-x", &[page(&text)]).unwrap(),
            [JournalEntry { id: IntentId(3), effect: begin(), result: None }]
        );
    }

    #[test]
    fn a_result_may_stand_on_a_later_page() {
        let first = line(&Line::Intent { id: 0, effect: begin() });
        let second = line(&Line::Settled { id: 0, result: "done".into() });
        let known = read("backup-x", &[page(&first), page(&second)]).unwrap();
        assert_eq!(known[0].result.as_deref(), Some("done"));
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_lost_not_guessed() {
        for text in ["{\"intent\":", "{\"settled\":{\"id\":1,\"result\":\"x\"}}\n"] {
            assert_eq!(read("backup-x", &[page(text)]).unwrap_err().reason(), "JournalLost");
        }
    }
}
