//! What Kanister's `kando` does inside the pods of a phase: data to and from a Profile's location, and outputs.
//!
//! ```text
//!  mysqldump │ gzip │ kando location push --path P -        stdin ──▶ <bucket>/<prefix>/<P>
//!  kando location pull --path P - │ gunzip │ mysql          <bucket>/<prefix>/<P> ──▶ stdout
//!  kando output key value                                   stdout: ###Phase-output###: {…}
//!  while it moves data                                      stderr: ###Phase-progress###: {frame}
//! ```
//!
//! What it must never do: write anything but data and outputs to standard output, or let a credential into an error, a
//! log line or a frame.

mod error;
pub mod protocol;
mod transfer;

pub use error::{KandoError, Result};
pub use transfer::{Kando, Moved};
