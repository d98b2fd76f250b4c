//! What the crate promises.

mod functions;
mod golden;
mod hostile;
