//! Kinds and names as arguments.

use std::fmt;
use std::str::FromStr;

use clap::Args;

use crate::errors::UsageError;

/// A kind of object that commands take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    Backup,
    Restore,
    Schedule,
    Location,
    Operation,
    Action,
}

/// The names of each kind. The first one is used in output.
const NAMES: [(ResourceKind, &[&str]); 6] = [
    (ResourceKind::Backup, &["backup", "backups"]),
    (ResourceKind::Restore, &["restore", "restores"]),
    (ResourceKind::Schedule, &["schedule", "schedules"]),
    (
        ResourceKind::Location,
        &[
            "backup-location",
            "backup-locations",
            "location",
            "locations",
            "bsl",
            "backupstoragelocation",
            "backupstoragelocations",
        ],
    ),
    (ResourceKind::Operation, &["operation", "operations", "ops"]),
    (ResourceKind::Action, &["action", "actions", "actionset", "actionsets"]),
];

impl ResourceKind {
    /// Its name in output.
    pub fn word(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, names)| names[0])
    }

    /// The verb of its operations, which is the first half of their names.
    pub fn verb(self) -> &'static str {
        if self == Self::Action { "run" } else { self.word() }
    }
}

impl FromStr for ResourceKind {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let lower = text.to_lowercase();
        let known = NAMES.iter().find(|(_, names)| names.contains(&lower.as_str()));
        known.map(|(kind, _)| *kind).ok_or_else(|| {
            let words: Vec<_> = NAMES.iter().map(|(kind, _)| kind.word()).collect();
            UsageError(format!("unknown kind {text:?}: expected {}", words.join(", ")))
        })
    }
}

/// `backup/nightly`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub kind: ResourceKind,
    pub name: String,
}

impl FromStr for Reference {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let wrong = || {
            UsageError(format!("invalid reference {text:?}: expected KIND/NAME, e.g. backup/nightly or restore/monday"))
        };
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let kind = kind.parse()?;
        if name.is_empty() { Err(wrong()) } else { Ok(Self { kind, name: name.to_owned() }) }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.name)
    }
}

/// Objects of one kind; without names it is the kind alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    pub kind: ResourceKind,
    pub names: Vec<String>,
}

impl Targets {
    /// The one that is named.
    pub fn single(self, verb: &str) -> Result<Reference, UsageError> {
        let Self { kind, mut names } = self;
        let name = names.pop().filter(|_| names.is_empty());
        let name =
            name.ok_or_else(|| UsageError(format!("expected exactly one name: plimsoll {} {verb} NAME", kind.word())))?;
        Ok(Reference { kind, name })
    }
}

/// Names after a command that says the kind: `plimsoll backup get a b`.
#[derive(Debug, Args)]
pub struct NameArguments<T: Args> {
    /// Names
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub options: T,
}

impl<T: Args> NameArguments<T> {
    pub fn of(self, kind: ResourceKind) -> (Targets, T) {
        (Targets { kind, names: self.names }, self.options)
    }
}

/// Kind and names after a verb: `plimsoll get backups`, `plimsoll describe backup/a`, `plimsoll delete backup a b`.
#[derive(Debug, Args)]
pub struct KindArguments<T: Args> {
    /// Kind and names: backups, backup a b, or backup/a
    #[arg(value_name = "KIND[/NAME]", required = true)]
    pub targets: Vec<String>,
    #[command(flatten)]
    pub options: T,
}

impl<T: Args> KindArguments<T> {
    pub fn resolve(self) -> Result<(Targets, T), UsageError> {
        Ok((targets(&self.targets)?, self.options))
    }
}

fn targets(words: &[String]) -> Result<Targets, UsageError> {
    let Some((first, rest)) = words.split_first() else {
        return Err(UsageError("expected a kind, e.g. backups".into()));
    };
    if !first.contains('/') {
        return Ok(Targets { kind: first.parse()?, names: rest.to_vec() });
    }
    let references: Vec<Reference> = words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let kind = references[0].kind;
    if references.iter().any(|reference| reference.kind != kind) {
        return Err(UsageError("all references must have the same kind".into()));
    }
    Ok(Targets { kind, names: references.into_iter().map(|reference| reference.name).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_needs_a_kind_and_a_name() {
        assert_eq!("backup/x".parse(), Ok(Reference { kind: ResourceKind::Backup, name: "x".into() }));
        assert_eq!("bsl/x".parse(), Ok(Reference { kind: ResourceKind::Location, name: "x".into() }));
        for wrong in ["x", "backup/", "/x"] {
            assert!(wrong.parse::<Reference>().is_err(), "{wrong}");
        }
        assert!("pod/x".parse::<Reference>().unwrap_err().0.contains("unknown kind"));
    }

    #[test]
    fn targets_are_a_kind_with_names_in_any_of_three_ways() {
        let cases: [(&[&str], &[&str]); 4] = [
            (&["backups"], &[]),
            (&["backup", "a", "b"], &["a", "b"]),
            (&["backup/a"], &["a"]),
            (&["backup/a", "backups/b"], &["a", "b"]),
        ];
        for (words, names) in cases {
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            let names = names.iter().map(ToString::to_string).collect();
            assert_eq!(targets(&words), Ok(Targets { kind: ResourceKind::Backup, names }), "{words:?}");
        }
        assert!(targets(&["backup/a".into(), "restore/b".into()]).is_err());
    }
}
