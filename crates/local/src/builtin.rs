//! The built-in kinds: those that occur in backups.

use crate::{
    kind::{Conversion, Kind},
    table::Column,
};
use plimsoll_select::names::NameRule;

/// All built-in kinds.
pub(crate) fn kinds() -> Vec<Kind> {
    let rows = include_str!("kinds.txt").lines().filter(|row| !row.starts_with('#'));
    rows.map(parse).chain(std::iter::once(new_event())).collect()
}

fn parse(row: &str) -> Kind {
    let (words, columns) = row.split_once('|').unwrap_or((row, ""));
    let mut words = words.split_whitespace();
    let mut word = || words.next().unwrap_or_default();
    let (group_version, kind, plural) = (word(), word(), word());
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let mut parsed = Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        storage_version: version.to_owned(),
        columns: Column::parse_all(columns),
        ..Kind::default()
    };
    for word in words {
        apply(&mut parsed, word);
    }
    parsed
}

fn apply(kind: &mut Kind, word: &str) {
    let list = |values: &str| values.split(',').map(str::to_owned).collect();
    match word {
        "ns" => kind.namespaced = true,
        "status" => kind.status = true,
        "scale" => kind.scale = true,
        "gen" => kind.generation = true,
        "all" => kind.categories = vec!["all".to_owned()],
        "label" => kind.name_rule = NameRule::Label,
        "service" => kind.name_rule = NameRule::Service,
        "path" => kind.name_rule = NameRule::PathSegment,
        _ => match word.split_once('=') {
            Some(("short", names)) => kind.short_names = list(names),
            Some(("fields", fields)) => kind.selectable = list(fields),
            _ => {}
        },
    }
}

/// `events.k8s.io/v1`: the same objects as the core events.
fn new_event() -> Kind {
    Kind {
        storage: Some("events".into()),
        storage_version: "v1".to_owned(),
        conversion: Conversion::NewEvent,
        selectable: vec!["reason".to_owned(), "type".to_owned()],
        ..parse(
            "events.k8s.io/v1 Event events ns path short=ev | -Name Last_Seen:#lastSeen Type:.type Reason:.reason Object:#regarding Message:.note Name*:.metadata.name",
        )
    }
}
