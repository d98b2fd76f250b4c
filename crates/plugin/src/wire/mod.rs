//! Messages and methods of Velero's plugin protocol, and of the progress extension.
//!
//! Written by hand, one struct for each message: they are few and stable, so no code generation is needed. Every request begins
//! with the registered name of the plugin, because one process implements several.
#![expect(missing_docs, reason = "names and meanings are those of the protocol")]

mod go_plugin;
mod item_actions;
mod object_store;
mod shared;
mod snapshot_progress;
mod volume_snapshotter;

use std::marker::PhantomData;

pub use go_plugin::*;
pub use item_actions::*;
pub use object_store::*;
pub use shared::*;
pub use snapshot_progress::*;
pub use volume_snapshotter::*;

/// One request, one response.
pub struct Unary;
/// A stream of requests, one response.
pub struct ClientStreaming;
/// One request, a stream of responses.
pub struct ServerStreaming;

/// A gRPC method with its path and message types.
pub struct Method<Request, Output, Mode = Unary> {
    path: &'static str,
    types: PhantomData<fn(Request, Mode) -> Output>,
}

impl<Request, Output, Mode> Clone for Method<Request, Output, Mode> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Request, Output, Mode> Copy for Method<Request, Output, Mode> {}

impl<Request, Output, Mode> Method<Request, Output, Mode> {
    /// The method with the path `/package.Service/Name`.
    pub const fn new(path: &'static str) -> Self {
        Self { path, types: PhantomData }
    }

    /// `/package.Service/Name`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// `Service.Name`, for messages.
    pub fn name(&self) -> String {
        let short = self.path.rsplit_once('.').map_or(self.path, |(_, short)| short);
        short.replace('/', ".")
    }
}

/// A request with the name of the plugin.
pub trait PluginRequest {
    /// The registered name.
    fn plugin(&self) -> &str;
}

macro_rules! plugin_requests {
    ($($message:ty),* $(,)?) => {
        $(impl $crate::wire::PluginRequest for $message {
            fn plugin(&self) -> &str {
                &self.plugin
            }
        })*
    };
}
pub(crate) use plugin_requests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_a_path_and_a_short_name() {
        assert_eq!(CREATE_SNAPSHOT.name(), "VolumeSnapshotter.CreateSnapshot");
        assert_eq!(EXECUTE_BACKUP_V2.path(), "/v2.BackupItemAction/Execute");
    }
}
