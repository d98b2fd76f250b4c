//! Object storage behind one type: S3, GCS, Azure Blob and plain directories.
//!
//! ```text
//!  Location ──open──▶ Store ──put get list delete──▶ provider (S3, GCS, Azure, directory)
//!                       │                               │
//!                       └─upload──▶ Upload (parts)      └─ watchdog: no bytes ─▶ cancel, retry, tell the observers
//! ```
//!
//! What a caller may rely on:
//! - A key is either absent or holds a complete object: nothing is visible before a `put` or [`Upload::finish`] has
//!   succeeded. In a directory a finished write has been flushed to the disk.
//! - Deleting what is not there is a success.
//! - Transient failures are retried inside; what comes out has been tried often enough. A transfer that breaks is begun again
//!   however long it took; only so often, and only while it moves.
//! - No request waits for ever: one that moves no bytes is cancelled and tried again, and
//!   [`Store::observe`] says so while it happens. One that moves may take any time, and says that it does.
//!
//! What it must never do: put a credential into an error, a log line or a `Debug` output, or hold a whole object in
//! memory in order to stream it.

mod again;
mod error;
mod line;
mod location;
mod provider;
mod reader;
mod store;
mod uncached;
mod upload;
mod watch;

pub use error::{Result, StoreError};
pub use location::{AwsKeys, AzureAccount, AzureIdentity, Location, Tuning};
pub use object_store::ObjectStore;
pub use reader::Reader;
pub use store::{ObjectInfo, Store};
pub use uncached::ALIGNMENT;
pub use upload::Upload;
pub use url::Url;
pub use watch::{Observer, Observing, Wait};
