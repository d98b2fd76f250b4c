//! The bytes of a repository: no input or output here, only encoding and decoding.
//!
//! Every decoder takes foreign bytes: it answers with an error, never with a panic, and allocates no more than a fixed
//! multiple of what it was given.

pub mod blob;
pub mod chunker;
mod chunker_wide;
pub mod config;
pub mod crypto;
pub(crate) mod hash;
pub mod id;
pub mod index;
pub mod key;
mod keystream;
pub mod mode;
pub mod names;
pub mod pack;
mod poly1305;
pub mod polynomial;
mod printable;
pub mod snapshot;
pub mod time;
pub mod tree;
pub mod unpacked;
mod writer;
