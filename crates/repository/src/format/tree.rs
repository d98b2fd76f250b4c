//! Trees: directories as JSON, one node for each entry.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::id::Id;
use super::names;
use super::time::Time;
use super::writer::{ObjectWriter, push_id, push_list};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NodeKind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A named pipe.
    Fifo,
    /// A socket; never restored.
    Socket,
}

const KINDS: [(NodeKind, &str); 7] = [
    (NodeKind::File, "file"),
    (NodeKind::Directory, "dir"),
    (NodeKind::Symlink, "symlink"),
    (NodeKind::BlockDevice, "dev"),
    (NodeKind::CharacterDevice, "chardev"),
    (NodeKind::Fifo, "fifo"),
    (NodeKind::Socket, "socket"),
];

impl NodeKind {
    /// Its name in a tree.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("file", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }
}

/// An extended attribute. ACLs are attributes too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name with namespace, for example `user.comment`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Node {
    /// Last part of the path, any bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: NodeKind,
    /// Mode in the form of [`super::mode::stored`].
    pub mode: u32,
    /// Last change of the content.
    pub mtime: Time,
    /// Last access, or the same as `mtime`.
    pub atime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Owner's name, empty if not known.
    pub user: Vec<u8>,
    /// Group's name, empty if not known.
    pub group: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Device the inode is on; 0 if it is left out.
    pub device_id: u64,
    /// Bytes of a file.
    pub size: u64,
    /// Number of hard links.
    pub links: u64,
    /// Where a symbolic link points to.
    pub link_target: Vec<u8>,
    /// Extended attributes in the system's order.
    pub attributes: Vec<Attribute>,
    /// Attributes of another system, kept as they are: JSON.
    pub generic_attributes: Option<String>,
    /// Device number of a device.
    pub device: u64,
    /// Blobs of a file; nothing for anything else.
    pub content: Option<Vec<Id>>,
    /// Tree of a directory.
    pub subtree: Option<Id>,
}

/// A directory: its entries, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    /// The entries.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// The bytes of the tree blob; its hash is the tree's ID.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.nodes.len() * 400);
        out.extend_from_slice(b"{\"nodes\":[");
        push_list(&self.nodes, &mut out, Node::push);
        out.extend_from_slice(b"]}\n");
        out
    }

    /// Reads a tree blob.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let wire: WireTree = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        Ok(Self { nodes: wire.nodes.map(|nodes| nodes.0).unwrap_or_default() })
    }

    /// The entry of this name.
    pub fn find(&self, name: &[u8]) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.name.as_slice().cmp(name)).ok()?;
        self.nodes.get(at)
    }
}

impl Node {
    fn push(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::new(out);
        let mut quoted = String::with_capacity(self.name.len());
        names::quote(&self.name, &mut quoted);
        object.text("name", quoted.as_bytes());
        object.text("type", self.kind.word().as_bytes());
        object.number_unless_zero("mode", u64::from(self.mode));
        object.time("mtime", &self.mtime);
        object.time("atime", &self.atime);
        object.time("ctime", &self.ctime);
        object.number("uid", u64::from(self.uid));
        object.number("gid", u64::from(self.gid));
        object.text_unless_empty("user", &self.user);
        object.text_unless_empty("group", &self.group);
        object.number_unless_zero("inode", self.inode);
        object.number_unless_zero("device_id", self.device_id);
        object.number_unless_zero("size", self.size);
        object.number_unless_zero("links", self.links);
        self.push_link(&mut object);
        self.push_attributes(&mut object);
        object.number_unless_zero("device", self.device);
        match &self.content {
            Some(content) => object.list("content", content, push_id),
            None => object.raw("content", b"null"),
        }
        if let Some(subtree) = &self.subtree {
            object.id("subtree", subtree);
        }
        object.end();
    }

    fn push_link(&self, object: &mut ObjectWriter<'_>) {
        object.text_unless_empty("linktarget", &self.link_target);
        if std::str::from_utf8(&self.link_target).is_err() {
            object.base64("linktarget_raw", &self.link_target);
        }
    }

    fn push_attributes(&self, object: &mut ObjectWriter<'_>) {
        if !self.attributes.is_empty() {
            object.list("extended_attributes", &self.attributes, |attribute, out| {
                let mut object = ObjectWriter::new(out);
                object.text("name", &attribute.name);
                object.base64("value", &attribute.value);
                object.end();
            });
        }
        if let Some(generic) = &self.generic_attributes {
            object.raw("generic_attributes", generic.as_bytes());
        }
    }

    fn from_wire(wire: WireNode<'_>) -> Result<Self, String> {
        let name = names::unquote(&wire.name).ok_or_else(|| format!("invalid quoted name {:?}", wire.name))?;
        let kind = NodeKind::parse(&wire.kind).ok_or_else(|| format!("unknown node type {:?}", wire.kind))?;
        let link_target = match wire.linktarget_raw {
            Some(raw) => STANDARD.decode(raw.as_bytes()).map_err(|error| error.to_string())?,
            None => wire.linktarget.into_owned().into_bytes(),
        };
        let attributes = wire.extended_attributes.unwrap_or_default().into_iter().map(Attribute::from_wire);
        Ok(Self {
            name,
            kind,
            mode: wire.mode,
            mtime: wire.mtime,
            atime: wire.atime,
            ctime: wire.ctime,
            uid: wire.uid,
            gid: wire.gid,
            user: wire.user.into_owned().into_bytes(),
            group: wire.group.into_owned().into_bytes(),
            inode: wire.inode,
            device_id: wire.device_id,
            size: wire.size,
            links: wire.links,
            link_target,
            attributes: attributes.collect::<Result<_, _>>()?,
            generic_attributes: wire.generic_attributes.map(|json| json.get().to_owned()),
            device: wire.device,
            content: wire.content,
            subtree: wire.subtree,
        })
    }

    /// Whether the name is valid in a directory: an untrusted tree must not lead a restore out of its target.
    pub fn has_safe_name(&self) -> bool {
        !self.name.is_empty()
            && self.name != b"."
            && self.name != b".."
            && !self.name.contains(&b'/')
            && !self.name.contains(&0)
    }

    /// The identity of a hard-linked file; `None` for a single link.
    pub fn hard_link_key(&self) -> Option<(u64, u64)> {
        (self.kind == NodeKind::File && self.links > 1 && self.inode != 0).then_some((self.inode, self.device_id))
    }
}

impl Attribute {
    fn from_wire(wire: WireAttribute<'_>) -> Result<Self, String> {
        let value = match wire.value {
            Some(value) => STANDARD.decode(value.as_bytes()).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        Ok(Self { name: wire.name.into_owned().into_bytes(), value })
    }
}

type Text<'a> = std::borrow::Cow<'a, str>;

#[derive(Deserialize)]
struct WireTree {
    nodes: Option<WireNodes>,
}

/// Converts each node before the next one is parsed, because a directory may have very many.
struct WireNodes(Vec<Node>);

impl<'de> Deserialize<'de> for WireNodes {
    fn deserialize<D: Deserializer<'de>>(wire: D) -> Result<Self, D::Error> {
        wire.deserialize_seq(NodesVisitor)
    }
}

struct NodesVisitor;

impl<'de> Visitor<'de> for NodesVisitor {
    type Value = WireNodes;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut wire: A) -> Result<WireNodes, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = wire.next_element::<WireNode<'de>>()? {
            nodes.push(Node::from_wire(node).map_err(A::Error::custom)?);
        }
        Ok(WireNodes(nodes))
    }
}

#[derive(Deserialize)]
struct WireNode<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    mode: u32,
    #[serde(default)]
    mtime: Time,
    #[serde(default)]
    atime: Time,
    #[serde(default)]
    ctime: Time,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(borrow, default)]
    user: Text<'a>,
    #[serde(borrow, default)]
    group: Text<'a>,
    #[serde(default)]
    inode: u64,
    #[serde(default)]
    device_id: u64,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    links: u64,
    #[serde(borrow, default)]
    linktarget: Text<'a>,
    #[serde(borrow, default)]
    linktarget_raw: Option<Text<'a>>,
    #[serde(borrow, default)]
    extended_attributes: Option<Vec<WireAttribute<'a>>>,
    #[serde(default)]
    generic_attributes: Option<Box<RawValue>>,
    #[serde(default)]
    device: u64,
    #[serde(default)]
    content: Option<Vec<Id>>,
    #[serde(default)]
    subtree: Option<Id>,
}

#[derive(Deserialize)]
struct WireAttribute<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    value: Option<Text<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known tree; its ID is known too.
    const KNOWN: &str = include_str!("../../tests/data/tree.json");

    #[test]
    fn the_known_tree_reads_back_to_the_same_bytes() {
        assert_eq!(
            Id::of(KNOWN.as_bytes()).to_string(),
            "4b22139ef09c52d1219727b6c8191c0121cac9c6faf37959d961ca45d3a4a936"
        );
        let tree = Tree::parse(KNOWN.as_bytes()).expect("parses");
        assert_eq!(tree.nodes[0].name, b"a\"b\\c<&>\x7f\xff\xc2\xa0\xc3\xa9\xe2\x80\xa8");
        assert_eq!(tree.nodes[3].link_target, b"x\xff<y");
        assert_eq!(String::from_utf8(tree.encode()).expect("text"), KNOWN);
    }

    #[test]
    fn attributes_of_another_system_are_kept() {
        let generic = r#"{"windows.file_attributes":32,"windows.creation_time":"AAAA"}"#;
        let json = KNOWN.replacen(r#","content":["#, &format!(r#","generic_attributes":{generic},"content":["#), 1);
        let tree = Tree::parse(json.as_bytes()).expect("parses");
        assert_eq!(tree.nodes[0].generic_attributes.as_deref(), Some(generic));
        assert_eq!(String::from_utf8(tree.encode()).expect("text"), json);
    }

    #[test]
    fn an_empty_directory_has_the_known_id() {
        let id = Id::of(&Tree::default().encode());
        assert_eq!(id.to_string(), "ac08ce34ba4f8123618661bef2425f7028ffb9ac740578a3ee88684d2523fee8");
    }

    #[test]
    fn names_that_lead_out_of_a_directory_are_not_safe() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            let node = Node { name: name.to_vec(), ..Node::default() };
            assert!(!node.has_safe_name(), "{name:?}");
        }
    }
}
