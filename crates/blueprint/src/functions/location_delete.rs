//! LocationDelete: everything below a path of the profile's store.

use futures::future::BoxFuture;
use plimsoll_store::Store;

use super::call::{Again, Call, Function};
use crate::Error;
use crate::board::Outputs;
use crate::place::Place;

/// Deletes everything below a path.
pub struct LocationDelete;

/// The profile of the action.
pub fn place(call: &Call) -> Result<&Place, Error> {
    call.params.place.as_ref().ok_or_else(|| Error::Missing("the action has no profile".into()))
}

impl Function for LocationDelete {
    fn again(&self) -> Again {
        Again::Repeat
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let place = place(call)?;
            let artifact = call.arguments.text("artifact")?;
            let path = place.without_bucket(&artifact).trim_matches('/');
            if path.is_empty() {
                return Err(Error::argument("artifact", format!("is {artifact:?}, which is the whole bucket")));
            }
            let store = Store::open(&place.location())?;
            call.host.effect()?;
            call.host.point("phase.location.before");
            // The artifact may be one object, or all that lies below it.
            let alone = store.exists(path).await?;
            store.delete(path).await?;
            let count = store.delete_prefix(path).await? + u64::from(alone);
            call.host.point("phase.location.after");
            call.log(&format!("{count} objects at {path} deleted"));
            Ok(Outputs::new())
        })
    }
}
