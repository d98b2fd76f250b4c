//! Panics as errors of the work that panicked.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use plimsoll_engine::Error;

/// A panic of some work as its error: it fails that work, and not the process with everything else that it does.
pub async fn catch_panic<T>(what: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.unwrap_or_else(|panic| Err(Error::Panicked { what: what.to_owned(), message: message(panic) }))
}

fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(|| "no message".to_owned(), |text| (*text).to_owned()),
    }
}
