//! The outcome of each item: spooled, never held in memory.
//!
//! Only failures and warnings stay in memory, capped, with a count of the rest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_archive::results;
use serde::Serialize;

use crate::Error;
use crate::log::{Level, OperationLog};

/// The outcome of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// Written to the archive.
    BackedUp,
    /// Created.
    Created,
    /// Existed and was updated.
    Updated,
    /// Skipped on purpose.
    Skipped {
        /// Stable reason.
        reason: &'static str,
    },
    /// Failed.
    Failed {
        /// Stable reason.
        reason: String,
        /// Message with the cause.
        message: String,
    },
}

impl ItemOutcome {
    fn as_str(&self) -> &'static str {
        match self {
            Self::BackedUp => "backedUp",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped { .. } => "skipped",
            Self::Failed { .. } => "failed",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Skipped { reason } => Some(reason),
            Self::Failed { reason, .. } => Some(reason),
            _ => None,
        }
    }
}

/// Reference to an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRef {
    /// `apps/v1/Deployment`.
    pub kind: String,
    /// Namespace, if it has one.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ItemRef {
    /// `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

#[derive(Serialize)]
struct SpooledItem<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    name: &'a str,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Messages of a level that are kept; further ones are only counted.
const MAX_MESSAGES: usize = 1000;

/// Messages of one level, and their count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Messages {
    /// As in the results file.
    #[serde(flatten)]
    pub kept: results::Messages,
    /// Number of all messages.
    #[serde(skip)]
    pub count: u64,
}

impl Messages {
    pub(crate) fn add(&mut self, scope: &Scope, text: String) {
        self.count += 1;
        if self.count > MAX_MESSAGES as u64 {
            return;
        }
        match scope {
            Scope::Operation => self.kept.add_velero(text),
            Scope::Cluster => self.kept.add(None, text),
            Scope::Namespace(namespace) => self.kept.add(Some(namespace), text),
        }
    }

    /// Adds a last line with the number of messages that were not kept.
    fn with_overflow_note(mut self) -> Self {
        let kept = MAX_MESSAGES as u64;
        if self.count > kept {
            self.kept.add_velero(format!("and {} more: see the outcome file", self.count - kept));
        }
        self
    }
}

/// Scope of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The operation itself.
    Operation,
    /// Cluster-scoped objects.
    Cluster,
    /// Objects in this namespace.
    Namespace(String),
}

impl Scope {
    /// The scope of an item.
    pub fn of(item: &ItemRef) -> Self {
        item.namespace.clone().map_or(Self::Cluster, Self::Namespace)
    }

    /// The scope of a namespace; the cluster if it is empty.
    pub fn within(namespace: &str) -> Self {
        if namespace.is_empty() { Self::Cluster } else { Self::Namespace(namespace.to_owned()) }
    }
}

/// Errors and warnings of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Results {
    /// Something is missing.
    pub errors: Messages,
    /// Nothing is missing, but it should be checked.
    pub warnings: Messages,
    /// Number of skipped and failed items, by outcome and reason.
    #[serde(skip)]
    pub reasons: BTreeMap<(&'static str, String), u64>,
}

/// The files of an operation, and its errors and warnings.
#[derive(Debug)]
pub struct RecordedFiles {
    /// gzip JSON: one object for each item.
    pub outcome: PathBuf,
    /// gzip JSON: names by kind.
    pub resource_list: PathBuf,
    /// gzip text.
    pub log: PathBuf,
    /// Errors and warnings.
    pub results: Results,
}

/// The compressed log in the scratch directory of an operation.
pub(crate) fn log_path(directory: &Path) -> PathBuf {
    directory.join("log.gz")
}

/// Records the outcomes, messages and log of an operation.
pub struct Recorder {
    log: OperationLog,
    inner: Mutex<Inner>,
}

struct Inner {
    directory: PathBuf,
    outcome: GzEncoder<BufWriter<File>>,
    first: bool,
    names: BTreeMap<String, BufWriter<File>>,
    results: Results,
    broken: Option<Error>,
}

impl Recorder {
    /// Spools into `directory`, which must exist and belong to this operation.
    pub fn create(directory: &Path) -> Result<Self, Error> {
        let path = directory.join("outcome.json.gz");
        let file = File::create(&path).map_err(|e| Error::scratch(&path, e))?;
        let mut outcome = GzEncoder::new(BufWriter::new(file), Compression::fast());
        outcome.write_all(b"[").map_err(|e| Error::scratch(&path, e))?;
        let inner = Inner {
            directory: directory.to_owned(),
            outcome,
            first: true,
            names: BTreeMap::new(),
            results: Results::default(),
            broken: None,
        };
        Ok(Self { log: OperationLog::create(&log_path(directory))?, inner: Mutex::new(inner) })
    }

    /// The operation's log.
    pub fn log(&self) -> &OperationLog {
        &self.log
    }

    /// Takes down what became of an item. A failure counts as an error.
    pub fn item(&self, item: &ItemRef, outcome: &ItemOutcome) {
        if let ItemOutcome::Failed { message, .. } = outcome {
            self.error(&Scope::of(item), format!("{} {}: {message}", item.kind, item.path()));
        }
        self.with(|inner| {
            if let Some(reason) = outcome.reason() {
                *inner.results.reasons.entry((outcome.as_str(), reason.to_owned())).or_default() += 1;
            }
            if let Err(error) = inner.item(item, outcome) {
                inner.broken.get_or_insert(error);
            }
        });
    }

    /// Takes down an entry of an archive that is no object: it has no kind, so it stands in no list of objects.
    pub fn damaged(&self, path: &str, reason: &str, message: String) {
        let item = ItemRef { kind: String::new(), namespace: None, name: path.to_owned() };
        let outcome = ItemOutcome::Failed { reason: reason.to_owned(), message: message.clone() };
        self.error(&Scope::Operation, message);
        self.with(|inner| {
            *inner.results.reasons.entry(("failed", reason.to_owned())).or_default() += 1;
            if let Err(error) = inner.row(&item, &outcome) {
                inner.broken.get_or_insert(error);
            }
        });
    }

    /// Something is missing.
    pub fn error(&self, scope: &Scope, text: impl Into<String>) {
        let text = text.into();
        self.log.line(Level::Error, &text);
        self.with(|inner| inner.results.errors.add(scope, text));
    }

    /// Records a warning: nothing is missing, but it should be checked.
    pub fn warn(&self, scope: &Scope, text: impl Into<String>) {
        let text = text.into();
        self.log.line(Level::Warning, &text);
        self.with(|inner| inner.results.warnings.add(scope, text));
    }

    /// Errors and warnings so far.
    pub fn counts(&self) -> (u64, u64) {
        self.with(|inner| (inner.results.errors.count, inner.results.warnings.count))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Ends the files. An error here means that the scratch disk failed somewhere on the way.
    pub fn finish(self) -> Result<RecordedFiles, Error> {
        let inner = self.inner.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        inner.finish(self.log)
    }
}

impl Inner {
    fn item(&mut self, item: &ItemRef, outcome: &ItemOutcome) -> Result<(), Error> {
        self.row(item, outcome)?;
        self.name(item, outcome)
    }

    fn row(&mut self, item: &ItemRef, outcome: &ItemOutcome) -> Result<(), Error> {
        let message = match outcome {
            ItemOutcome::Failed { message, .. } => Some(message.as_str()),
            _ => None,
        };
        let row = SpooledItem {
            kind: &item.kind,
            namespace: item.namespace.as_deref(),
            name: &item.name,
            outcome: outcome.as_str(),
            reason: outcome.reason(),
            message,
        };
        let separator: &[u8] = if std::mem::take(&mut self.first) { b"\n" } else { b",\n" };
        let path = self.directory.join("outcome.json.gz");
        self.outcome.write_all(separator).map_err(|e| Error::scratch(&path, e))?;
        serde_json::to_writer(&mut self.outcome, &row).map_err(|e| Error::scratch(&path, e.into()))
    }

    fn name(&mut self, item: &ItemRef, outcome: &ItemOutcome) -> Result<(), Error> {
        let line = match outcome {
            ItemOutcome::BackedUp => item.path(),
            other => format!("{}({})", item.path(), other.as_str()),
        };
        let count = self.names.len();
        let path = self.directory.join(format!("names-{count}"));
        let file = match self.names.entry(item.kind.clone()) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
                entry.insert(BufWriter::new(file.map_err(|e| Error::scratch(&path, e))?))
            }
        };
        writeln!(file, "{line}").map_err(|e| Error::scratch(&path, e))
    }

    fn finish(mut self, log: OperationLog) -> Result<RecordedFiles, Error> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let outcome = self.directory.join("outcome.json.gz");
        self.outcome.write_all(b"\n]\n").map_err(|e| Error::scratch(&outcome, e))?;
        let file = self.outcome.finish().map_err(|e| Error::scratch(&outcome, e))?;
        file.into_inner().map_err(|e| Error::scratch(&outcome, e.into_error()))?;
        let resource_list = self.directory.join("resource-list.json.gz");
        write_resource_list(&resource_list, self.names).map_err(|e| Error::scratch(&resource_list, e))?;
        let Results { errors, warnings, reasons } = self.results;
        let results = Results { errors: errors.with_overflow_note(), warnings: warnings.with_overflow_note(), reasons };
        Ok(RecordedFiles { outcome, resource_list, log: log.finish()?, results })
    }
}

/// Holds one kind at a time in memory. Names are sorted, as Velero does.
fn write_resource_list(path: &Path, names: BTreeMap<String, BufWriter<File>>) -> std::io::Result<()> {
    let mut list = GzEncoder::new(BufWriter::new(File::create(path)?), Compression::fast());
    list.write_all(b"{")?;
    for (index, (kind, spool)) in names.into_iter().enumerate() {
        let mut file = spool.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        std::io::Seek::rewind(&mut file)?;
        let mut lines = BufReader::new(file).lines().collect::<Result<Vec<_>, _>>()?;
        lines.sort_unstable();
        lines.dedup();
        let separator: &[u8] = if index == 0 { b"" } else { b"," };
        list.write_all(separator)?;
        serde_json::to_writer(&mut list, &kind)?;
        list.write_all(b":")?;
        serde_json::to_writer(&mut list, &lines)?;
    }
    list.write_all(b"}")?;
    list.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(())
}
