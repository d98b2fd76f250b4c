//! Item actions of plugins: what they are asked, and what their answers mean.

mod backup;
mod block;
mod delete;
mod restore;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use backup::{BackupAction, BackupAnswer};
pub use block::BlockAction;
pub use delete::DeleteAction;
pub use restore::{RestoreAction, RestoreAnswer};

use crate::catalog::{Catalog, Kind, Offer};
use crate::logs::LogSink;
use crate::session::{Prime, Session};
use crate::text::bounded;
use crate::wire::{
    AppliesToRequest, AppliesToResponse, BACKUP_APPLIES_TO, BACKUP_APPLIES_TO_V2, BLOCK_APPLIES_TO, DELETE_APPLIES_TO,
    Method, RESTORE_APPLIES_TO, RESTORE_APPLIES_TO_V2, ResourceIdentifier, ResourceSelector,
};
use crate::{Error, Result};

/// How long an action may look at an item. Velero has no limit; a plugin that hangs would hang the backup for ever.
const LOOKING: Duration = Duration::from_mins(10);
/// How long a question about work in the background may take.
pub(crate) const ASKING: Duration = Duration::from_secs(5);
/// No answer names more items.
const MOST_ITEMS: usize = 10_000;

/// One item action of a plugin, in one operation.
#[derive(Clone)]
pub struct Action {
    session: Arc<Session>,
    offer: Offer,
    /// Plugins were written for a host that shows them one item after another.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Action {
    /// Its registered name.
    pub fn name(&self) -> &str {
        &self.offer.name
    }

    /// Its binary.
    pub fn binary(&self) -> &PathBuf {
        &self.offer.binary
    }

    /// The process it lives in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Which items it wants.
    pub async fn applies_to(&self) -> Result<ResourceSelector> {
        let Some(method) = applies_to(self.offer.kind) else { return Ok(ResourceSelector::default()) };
        let request = AppliesToRequest { plugin: self.offer.name.clone() };
        let answer = self.session.call(method, request, LOOKING).await?;
        Ok(answer.resource_selector.unwrap_or_default())
    }

    fn is_second_version(&self) -> bool {
        matches!(self.offer.kind, Kind::BackupItemActionV2 | Kind::RestoreItemActionV2)
    }

    fn invalid(&self, call: &str, detail: impl Into<String>) -> Error {
        Error::AnswerInvalid { plugin: self.offer.name.clone(), call: call.to_owned(), detail: detail.into() }
    }

    /// An object in an answer; none where it is left as it was.
    fn item(&self, call: &str, bytes: &[u8]) -> Result<Option<Value>> {
        if bytes.is_empty() || bytes == b"null" {
            return Ok(None);
        }
        match serde_json::from_slice::<Value>(bytes) {
            Ok(item) if item.is_object() => Ok(Some(item)),
            Ok(_) => Err(self.invalid(call, "the item is no object")),
            Err(error) => Err(self.invalid(call, format!("the item is no JSON: {error}"))),
        }
    }

    fn identifiers(&self, call: &str, items: Vec<ResourceIdentifier>) -> Result<Vec<ResourceIdentifier>> {
        if items.len() > MOST_ITEMS {
            return Err(self.invalid(call, format!("it names {} items, {MOST_ITEMS} are allowed", items.len())));
        }
        let is_sound = |item: &ResourceIdentifier| {
            let fits = |text: &str| text.len() <= 253 && !text.contains(char::is_control);
            !item.resource.is_empty()
                && !item.name.is_empty()
                && [&item.group, &item.resource, &item.namespace, &item.name].into_iter().all(|text| fits(text))
        };
        match items.iter().find(|item| !is_sound(item)) {
            Some(item) => Err(self.invalid(call, format!("{:?} names no item", bounded(&item.name, 60)))),
            None => Ok(items),
        }
    }

    fn operation(&self, call: &str, id: String) -> Result<Option<String>> {
        match id.as_str() {
            "" => Ok(None),
            id if id.len() > 1024 || id.contains(char::is_control) => {
                Err(self.invalid(call, "the operation's name is not usable"))
            }
            _ => Ok(Some(id)),
        }
    }
}

/// The question that makes an action be there.
fn applies_to(kind: Kind) -> Option<Method<AppliesToRequest, AppliesToResponse>> {
    match kind {
        Kind::BackupItemAction => Some(BACKUP_APPLIES_TO),
        Kind::BackupItemActionV2 => Some(BACKUP_APPLIES_TO_V2),
        Kind::RestoreItemAction => Some(RESTORE_APPLIES_TO),
        Kind::RestoreItemActionV2 => Some(RESTORE_APPLIES_TO_V2),
        Kind::DeleteItemAction => Some(DELETE_APPLIES_TO),
        Kind::ItemBlockAction => Some(BLOCK_APPLIES_TO),
        Kind::ObjectStore | Kind::VolumeSnapshotter => None,
    }
}

/// The actions of some kinds, for one operation: one process for each binary, started when it is first asked.
pub struct PluginActions {
    actions: Vec<Action>,
}

impl PluginActions {
    /// Those of backups.
    pub fn for_backup(catalog: &Catalog, logs: &Arc<dyn LogSink>) -> Self {
        Self::of(catalog, &[Kind::BackupItemAction, Kind::BackupItemActionV2, Kind::ItemBlockAction], logs)
    }

    /// Those of restores.
    pub fn for_restore(catalog: &Catalog, logs: &Arc<dyn LogSink>) -> Self {
        Self::of(catalog, &[Kind::RestoreItemAction, Kind::RestoreItemActionV2], logs)
    }

    /// Those of deletions.
    pub fn for_deletion(catalog: &Catalog, logs: &Arc<dyn LogSink>) -> Self {
        Self::of(catalog, &[Kind::DeleteItemAction], logs)
    }

    fn of(catalog: &Catalog, kinds: &[Kind], logs: &Arc<dyn LogSink>) -> Self {
        let mut primes = BTreeMap::<&PathBuf, Vec<Prime>>::new();
        for offer in catalog.of_kinds(kinds) {
            let prime = applies_to(offer.kind).map(|method| Prime::AppliesTo(method, offer.name.clone()));
            primes.entry(&offer.binary).or_default().extend(prime);
        }
        let sessions: BTreeMap<_, _> = primes
            .into_iter()
            .map(|(binary, primes)| (binary, catalog.session(binary, Arc::clone(logs), primes)))
            .collect();
        let action = |offer: &Offer| {
            let session = Arc::clone(sessions.get(&offer.binary)?);
            Some(Action { session, offer: offer.clone(), turn: Arc::default() })
        };
        Self { actions: catalog.of_kinds(kinds).filter_map(action).collect() }
    }

    /// The actions of backups, in order.
    pub fn backup(&self) -> impl Iterator<Item = BackupAction> {
        let kinds = [Kind::BackupItemAction, Kind::BackupItemActionV2];
        self.actions.iter().filter(move |action| kinds.contains(&action.offer.kind)).cloned().map(BackupAction)
    }

    /// The actions of restores, in order.
    pub fn restore(&self) -> impl Iterator<Item = RestoreAction> {
        let kinds = [Kind::RestoreItemAction, Kind::RestoreItemActionV2];
        self.actions.iter().filter(move |action| kinds.contains(&action.offer.kind)).cloned().map(RestoreAction)
    }

    /// The actions of deletions, in order.
    pub fn delete(&self) -> impl Iterator<Item = DeleteAction> {
        let wanted = |action: &&Action| action.offer.kind == Kind::DeleteItemAction;
        self.actions.iter().filter(wanted).cloned().map(DeleteAction)
    }

    /// The actions that find related items, in order.
    pub fn block(&self) -> impl Iterator<Item = BlockAction> {
        let wanted = |action: &&Action| action.offer.kind == Kind::ItemBlockAction;
        self.actions.iter().filter(wanted).cloned().map(BlockAction)
    }

    /// Ends the processes.
    pub async fn close(&self) {
        let mut closed: Vec<&Arc<Session>> = Vec::new();
        for action in &self.actions {
            if !closed.iter().any(|session| Arc::ptr_eq(session, &action.session)) {
                action.session.close().await;
                closed.push(&action.session);
            }
        }
    }
}
