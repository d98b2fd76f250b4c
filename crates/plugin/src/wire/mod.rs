//! The protocol on the wire: messages and methods, as Velero's plugins know them, and one service of our own.
//!
//! Written by hand, one struct for each message: they are few, they do not change, and nothing has to be generated. Every request
//! begins with the registered name of the plugin it is for, because one process serves several.
#![expect(missing_docs, reason = "names and meanings are the protocol's own")]

mod go_plugin;
mod item_actions;
mod object_store;
mod progress;
mod shared;
mod snapshotter;

use std::marker::PhantomData;

pub use go_plugin::*;
pub use item_actions::*;
pub use object_store::*;
pub use progress::*;
pub use shared::*;
pub use snapshotter::*;

/// How many messages go which way.
pub struct One;
/// Several requests, one answer.
pub struct Up;
/// One request, several answers.
pub struct Down;

/// A method: where it is, and what it takes and gives.
pub struct Method<Request, Answer, Shape = One> {
    path: &'static str,
    types: PhantomData<fn(Request, Shape) -> Answer>,
}

impl<Request, Answer, Shape> Clone for Method<Request, Answer, Shape> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Request, Answer, Shape> Copy for Method<Request, Answer, Shape> {}

impl<Request, Answer, Shape> Method<Request, Answer, Shape> {
    /// The method at `/package.Service/Name`.
    pub const fn at(path: &'static str) -> Self {
        Self { path, types: PhantomData }
    }

    /// `/package.Service/Name`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// `Service.Name`, for people.
    pub fn name(&self) -> String {
        let short = self.path.rsplit_once('.').map_or(self.path, |(_, short)| short);
        short.replace('/', ".")
    }
}

/// A request that says which plugin of a process it is for.
pub trait ForPlugin {
    /// The registered name.
    fn plugin(&self) -> &str;
}

macro_rules! for_plugin {
    ($($message:ty),* $(,)?) => {
        $(impl $crate::wire::ForPlugin for $message {
            fn plugin(&self) -> &str {
                &self.plugin
            }
        })*
    };
}
pub(crate) use for_plugin;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_called_by_its_service_and_name() {
        assert_eq!(CREATE_SNAPSHOT.name(), "VolumeSnapshotter.CreateSnapshot");
        assert_eq!(EXECUTE_BACKUP_V2.path(), "/v2.BackupItemAction/Execute");
    }
}
