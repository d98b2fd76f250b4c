//! The tarball of a backup: one JSON file for each object.
//!
//! ```text
//! metadata/version                                                    1.1.0
//! resources/pods/namespaces/demo/web-0.json                           the object
//! resources/pods/v1-preferredversion/namespaces/demo/web-0.json       the same again, for readers that choose versions
//! resources/persistentvolumes/cluster/pv-1.json
//! ```

mod header;
mod path;
mod reader;
mod writer;

pub use path::ItemPath;
pub use reader::{Counts as ReadCounts, Head, Item, Limits, Metadata, Reader};
pub use writer::{Counts, Options, Writer};

/// The version of the format we write.
pub const FORMAT_VERSION: &str = "1.1.0";

/// The path of the entry that holds the version.
pub const VERSION_PATH: &str = "metadata/version";
