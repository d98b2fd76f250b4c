//! The index of a spool: small rows, and the interned names they refer to.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::Error;

/// Length of the prefix of a name in memory: enough to sort and to display. The whole name is on disk.
const NAME_PREFIX_LENGTH: usize = 64;

/// Maximum memory of one object.
pub const MAX_ROW_BYTES: usize = size_of::<Row>() + NAME_PREFIX_LENGTH;
const _: () = assert!(MAX_ROW_BYTES <= 100);

/// The id for "no namespace".
const NO_NAMESPACE: u32 = u32::MAX;

/// Location and sort key of an object.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    /// Offset of its block in the file.
    pub(super) block: u64,
    /// Its offset in the block.
    pub(super) start: u32,
    /// The length of its JSON.
    pub(super) length: u32,
    pub(super) resource: u32,
    pub(super) namespace: u32,
    name: u32,
    name_length: u8,
}

/// The fields of a row that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowView<'a> {
    /// `pods`, `deployments.apps`.
    pub group_resource: &'a str,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// The name, or the prefix of a very long one.
    pub name: &'a str,
    /// The length of the object.
    pub length: u32,
}

/// Interned names of resources and namespaces; prefixes of object names.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    resources: Interner,
    namespaces: Interner,
    objects: String,
}

#[derive(Debug, Default)]
struct Interner {
    names: Vec<String>,
    ids: HashMap<String, u32>,
}

impl Interner {
    fn id(&mut self, name: &str) -> Result<u32, Error> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        let id = u32::try_from(self.names.len()).ok().filter(|id| *id != NO_NAMESPACE);
        let id = id.ok_or(Error::TooLarge { what: "names", limit: u64::from(NO_NAMESPACE) })?;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The rank of every id in the given order of names.
    fn ranks(&self, compare: impl Fn(&str, &str) -> Ordering) -> Vec<u32> {
        let mut sorted: Vec<u32> = self.ids.values().copied().collect();
        sorted.sort_by(|a, b| compare(&self.names[*a as usize], &self.names[*b as usize]));
        let mut ranks = vec![0; sorted.len()];
        for (rank, id) in (0..).zip(sorted) {
            ranks[id as usize] = rank;
        }
        ranks
    }
}

impl NameTable {
    /// A row for an object, without its location on disk.
    pub(super) fn row(&mut self, group_resource: &str, namespace: Option<&str>, name: &str) -> Result<Row, Error> {
        let resource = self.resources.id(group_resource)?;
        let namespace = namespace.map_or(Ok(NO_NAMESPACE), |namespace| self.namespaces.id(namespace))?;
        let offset = u32::try_from(self.objects.len());
        let offset = offset.map_err(|_| Error::TooLarge { what: "bytes of names", limit: u64::from(u32::MAX) })?;
        let prefix = name_prefix(name);
        self.objects.push_str(prefix);
        let name_length = u8::try_from(prefix.len()).unwrap_or(u8::MAX);
        Ok(Row { resource, namespace, name: offset, name_length, ..Row::default() })
    }

    pub(super) fn sort(&mut self, rows: &mut [Row], rank: impl Fn(&str) -> u32) {
        let resources = self.resources.ranks(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
        let namespaces = self.namespaces.ranks(str::cmp);
        let sort_key = |row: &Row| (resources[row.resource as usize], namespaces.get(row.namespace as usize));
        rows.sort_by(|a, b| {
            sort_key(a).cmp(&sort_key(b)).then_with(|| self.name_prefix_of(a).cmp(self.name_prefix_of(b)))
        });
    }

    pub(super) fn shrink(&mut self) {
        self.objects.shrink_to_fit();
    }

    pub(super) fn name_prefix_of(&self, row: &Row) -> &str {
        &self.objects[row.name as usize..][..usize::from(row.name_length)]
    }

    pub(super) fn view(&self, row: &Row) -> RowView<'_> {
        RowView {
            group_resource: &self.resources.names[row.resource as usize],
            namespace: self.namespaces.names.get(row.namespace as usize).map(String::as_str),
            name: self.name_prefix_of(row),
            length: row.length,
        }
    }

    /// The ids of a resource and a namespace, if the spool has them.
    pub(super) fn ids(&self, group_resource: &str, namespace: Option<&str>) -> Option<(u32, u32)> {
        let resource = *self.resources.ids.get(group_resource)?;
        let namespace = namespace.map_or(Some(NO_NAMESPACE), |name| self.namespaces.ids.get(name).copied())?;
        Some((resource, namespace))
    }
}

/// The prefix of a name that is kept in memory, cut at a character boundary.
pub(super) fn name_prefix(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_PREFIX_LENGTH)]
}
