//! The index: small rows, and the names they share.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::Error;

/// How much of a name stays in memory: enough to sort and to show. The whole name is on disk.
const KEPT_NAME: usize = 64;

/// What one object costs in memory at most.
pub const MOST_BYTES_A_ROW: usize = size_of::<Row>() + KEPT_NAME;
const _: () = assert!(MOST_BYTES_A_ROW <= 100);

/// No namespace.
const NONE: u32 = u32::MAX;

/// Where an object is, and what sorts it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    /// The place of its block in the file.
    pub(super) block: u64,
    /// Its place in the block.
    pub(super) start: u32,
    /// The length of its JSON.
    pub(super) length: u32,
    pub(super) resource: u32,
    pub(super) namespace: u32,
    name: u32,
    name_length: u8,
}

/// What a row says without a look at the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowView<'a> {
    /// `pods`, `deployments.apps`.
    pub group_resource: &'a str,
    /// None for what has no namespace.
    pub namespace: Option<&'a str>,
    /// The name, or the beginning of a very long one.
    pub name: &'a str,
    /// The length of the object.
    pub length: u32,
}

/// Every name there is, once; the first bytes of objects' names, one after another.
#[derive(Debug, Default)]
pub(super) struct Names {
    resources: Interned,
    namespaces: Interned,
    objects: String,
}

#[derive(Debug, Default)]
struct Interned {
    names: Vec<String>,
    ids: HashMap<String, u32>,
}

impl Interned {
    fn id(&mut self, name: &str) -> Result<u32, Error> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        let id = u32::try_from(self.names.len()).ok().filter(|id| *id != NONE);
        let id = id.ok_or(Error::TooLarge { what: "names", limit: u64::from(NONE) })?;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The place of every id in the order of names.
    fn places(&self, compare: impl Fn(&str, &str) -> Ordering) -> Vec<u32> {
        let mut sorted: Vec<u32> = self.ids.values().copied().collect();
        sorted.sort_by(|a, b| compare(&self.names[*a as usize], &self.names[*b as usize]));
        let mut places = vec![0; sorted.len()];
        for (place, id) in (0..).zip(sorted) {
            places[id as usize] = place;
        }
        places
    }
}

impl Names {
    /// A row for an object, without its place on disk.
    pub(super) fn row(&mut self, group_resource: &str, namespace: Option<&str>, name: &str) -> Result<Row, Error> {
        let resource = self.resources.id(group_resource)?;
        let namespace = namespace.map_or(Ok(NONE), |namespace| self.namespaces.id(namespace))?;
        let place = u32::try_from(self.objects.len());
        let place = place.map_err(|_| Error::TooLarge { what: "bytes of names", limit: u64::from(u32::MAX) })?;
        let kept = beginning(name);
        self.objects.push_str(kept);
        let name_length = u8::try_from(kept.len()).unwrap_or(u8::MAX);
        Ok(Row { resource, namespace, name: place, name_length, ..Row::default() })
    }

    pub(super) fn sort(&mut self, rows: &mut [Row], rank: impl Fn(&str) -> u32) {
        let resources = self.resources.places(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
        let namespaces = self.namespaces.places(str::cmp);
        let place = |row: &Row| (resources[row.resource as usize], namespaces.get(row.namespace as usize));
        rows.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| self.kept_name(a).cmp(self.kept_name(b))));
    }

    pub(super) fn shrink(&mut self) {
        self.objects.shrink_to_fit();
    }

    pub(super) fn kept_name(&self, row: &Row) -> &str {
        &self.objects[row.name as usize..][..usize::from(row.name_length)]
    }

    pub(super) fn view(&self, row: &Row) -> RowView<'_> {
        RowView {
            group_resource: &self.resources.names[row.resource as usize],
            namespace: self.namespaces.names.get(row.namespace as usize).map(String::as_str),
            name: self.kept_name(row),
            length: row.length,
        }
    }

    /// The ids of a resource and a namespace, if anything has them.
    pub(super) fn ids(&self, group_resource: &str, namespace: Option<&str>) -> Option<(u32, u32)> {
        let resource = *self.resources.ids.get(group_resource)?;
        let namespace = namespace.map_or(Some(NONE), |name| self.namespaces.ids.get(name).copied())?;
        Some((resource, namespace))
    }
}

/// As much of a name as is kept, cut between characters.
pub(super) fn beginning(name: &str) -> &str {
    &name[..name.floor_char_boundary(KEPT_NAME)]
}
