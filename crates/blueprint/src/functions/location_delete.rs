//! LocationDelete: deletes everything under a path of the profile's store.

use futures::future::BoxFuture;
use plimsoll_store::Store;

use super::call::{Call, Function, ResumePolicy};
use crate::Error;
use crate::profile::ResolvedProfile;
use crate::results::Outputs;

/// Deletes everything under a path.
pub struct LocationDelete;

/// The profile of the action.
pub fn profile(call: &Call) -> Result<&ResolvedProfile, Error> {
    call.params.profile.as_ref().ok_or_else(|| Error::Missing("the action has no profile".into()))
}

impl Function for LocationDelete {
    fn resume_policy(&self) -> ResumePolicy {
        ResumePolicy::Repeat
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let profile = profile(call)?;
            let artifact = call.arguments.text("artifact")?;
            let path = profile.without_bucket(&artifact).trim_matches('/');
            if path.is_empty() {
                return Err(Error::argument("artifact", format!("{artifact:?} is the whole bucket")));
            }
            let store = Store::open(&profile.location())?;
            call.host.authorize_effect()?;
            call.host.failpoint("phase.location.before");
            // The artifact may be one object or a prefix.
            let exists = store.exists(path).await?;
            store.delete(path).await?;
            let count = store.delete_prefix(path).await? + u64::from(exists);
            call.host.failpoint("phase.location.after");
            call.log(&format!("deleted {count} objects at {path}"));
            Ok(Outputs::new())
        })
    }
}
