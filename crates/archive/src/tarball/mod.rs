//! The tarball of a backup: one JSON file for each object.
//!
//! ```text
//! metadata/version                                                    1.1.0
//! resources/pods/namespaces/demo/web-0.json                           the object
//! resources/pods/v1-preferredversion/namespaces/demo/web-0.json       a copy for readers that select by API version
//! resources/persistentvolumes/cluster/pv-1.json
//! ```

mod entry_header;
mod item_path;
mod reader;
mod writer;

pub use item_path::ItemPath;
pub use reader::{Item, Metadata, ObjectHeader, ReadCounts, Reader, ReaderLimits};
pub use writer::{WriteCounts, Writer, WriterOptions};

/// The format version that [`Writer`] writes.
pub const FORMAT_VERSION: &str = "1.1.0";

/// The path of the entry with the format version.
pub const VERSION_PATH: &str = "metadata/version";
