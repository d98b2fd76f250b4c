use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use plimsoll_engine::Error;
use plimsoll_operations::{Flush, LiveProgress};

struct Counting(AtomicUsize);

impl Flush for Counting {
    fn flush(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn only_the_state_of_the_named_subject_is_written() {
    let (live, counting) = (LiveProgress::default(), Arc::new(Counting(AtomicUsize::new(0))));
    live.register("backup", "a", counting.clone());
    live.flush("backup", "b").await.unwrap();
    live.flush("backup", "a").await.unwrap();
    live.unregister("backup", "a");
    live.flush("backup", "a").await.unwrap();
    assert_eq!(counting.0.load(Ordering::Relaxed), 1);
}
