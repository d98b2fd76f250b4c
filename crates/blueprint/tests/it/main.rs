//! What the crate promises.

mod functions;
