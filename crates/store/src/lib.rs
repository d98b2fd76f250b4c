//! Object storage behind one type: S3, GCS, Azure Blob and plain directories.
//!
//! ```text
//!  Location ──open──▶ Store ──put get list delete──▶ provider (S3, GCS, Azure, directory)
//!                       │                               │
//!                       └─upload──▶ Upload (parts)      └─ watchdog: no bytes ─▶ cancel, retry, notify observers
//! ```
//!
//! What a caller may rely on:
//! - A key is either absent or holds a complete object: nothing is visible before a `put` or [`Upload::finish`] has
//!   succeeded. In a directory a finished write has been flushed to the disk.
//! - Deleting an object that does not exist succeeds.
//! - Transient failures are retried inside: a caller need not retry an error. A transfer that fails is restarted however long
//!   it took, up to [`Tuning::max_retries`] times and only while it moves bytes.
//! - No request hangs: one that moves no bytes is cancelled and retried, and [`Store::observe`] reports it. One that moves bytes
//!   has no time limit and reports them.
//!
//! What it must never do: put a credential into an error, a log line or a `Debug` output, or hold a whole object in
//! memory in order to stream it.

mod error;
mod http_client;
mod location;
mod provider;
mod reader;
mod retry;
mod store;
mod transfer_attempts;
mod uncached;
mod upload;
mod watchdog;

pub use error::{Result, StoreError};
pub use location::{AwsKeys, AzureAccount, AzureIdentity, Location, Tuning};
pub use object_store::ObjectStore;
pub use reader::Reader;
pub use retry::RetryPolicy;
pub use store::{ObjectInfo, Store};
pub use uncached::ALIGNMENT;
pub use upload::Upload;
pub use url::Url;
pub use watchdog::{Observer, ObserverGuard, Wait};
