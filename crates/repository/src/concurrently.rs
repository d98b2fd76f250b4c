//! Two requests at the same time: each costs a round trip to the store.

/// Runs both closures at the same time and returns both results.
pub(crate) fn concurrently<A: Send, B>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other)
    })
}
