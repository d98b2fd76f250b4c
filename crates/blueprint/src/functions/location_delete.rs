//! LocationDelete: deletes everything under a path of the profile's store.

use plimsoll_store::Store;

use super::call::Call;
use crate::Error;
use crate::profile::ResolvedProfile;
use crate::results::Outputs;

/// The profile of the action, which has to be one of object storage.
pub fn profile(call: &Call) -> Result<&ResolvedProfile, Error> {
    let profile = call.params.profile.as_ref().ok_or_else(|| Error::Missing("the action has no profile".into()))?;
    Ok(profile.require_store()?)
}

/// Deletes everything under a path.
pub async fn location_delete(call: &Call) -> Result<Outputs, Error> {
    let profile = profile(call)?;
    let artifact = call.arguments.text("artifact")?;
    let path = profile.without_bucket(&artifact).trim_matches('/');
    if path.is_empty() {
        return Err(Error::argument("artifact", format!("{artifact:?} is the whole bucket")));
    }
    let store = Store::open(&profile.location())?;
    call.host.authorize_effect()?;
    call.host.kill_point("phase.location.before");
    // The artifact may be one object or a prefix.
    let exists = store.exists(path).await?;
    store.delete(path).await?;
    let count = store.delete_prefix(path).await? + u64::from(exists);
    call.host.kill_point("phase.location.after");
    call.log(&format!("deleted {count} objects at {path}"));
    Ok(Outputs::new())
}
