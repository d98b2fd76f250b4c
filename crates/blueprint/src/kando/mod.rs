//! The commands of Kanister's `kando` in the pods of a phase: data to and from the location of a Profile, and outputs.
//!
//! ```text
//!  mysqldump │ gzip │ kando location push --path P -        stdin ──▶ <bucket>/<prefix>/<P>
//!  kando location pull --path P - │ gunzip │ mysql          <bucket>/<prefix>/<P> ──▶ stdout
//!  kando output key value                                   stdout: ###Phase-output###: {…}
//!  during a transfer                                        stderr: ###Phase-progress###: {frame}
//! ```
//!
//! It must never write anything but data and outputs to standard output, or a credential to an error, a log line or a frame.

mod error;
mod kopia;
pub mod protocol;
mod transfer;

pub use error::{KandoError, Result};
pub use kopia::{DEFAULT_OUTPUT, KopiaKando, SnapshotInfo};
pub use transfer::{Kando, TransferSummary};
