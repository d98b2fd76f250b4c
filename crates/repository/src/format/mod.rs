//! The repository format: encoding and decoding only, without I/O.
//!
//! Decoders do not trust their input: they return errors, never panic, and allocate at most a fixed multiple of the input.

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
mod vector_code;
mod writer;
#[cfg(test)]
mod wycheproof;
