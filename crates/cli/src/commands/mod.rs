//! One module for each command.

pub mod backup;
pub mod cancel;
pub mod completion;
pub mod crds;
pub mod create;
pub mod demo;
pub mod describe;
pub mod get;
pub mod local;
pub mod restore;
pub mod server;
