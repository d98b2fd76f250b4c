//! The caches of repositories: one for each, removed beyond the limit, never while a transfer uses it.

use std::path::PathBuf;

use plimsoll_api::velero::v1::PodVolumeBackup;
use serde_json::json;

use crate::test_bed::{TestBed, script, wait_for_path};

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_beyond_the_limit_goes_but_not_while_a_transfer_uses_it() {
    let bed = TestBed::new().await;
    let unused = bed.path("cache/unused");
    std::fs::create_dir_all(&unused).unwrap();
    std::fs::write(unused.join("index"), vec![1; 64 << 10]).unwrap();
    let cache = bed.path("cache");
    let agent = bed.start_with("agent", script::WAIT_FOR_GO_UNLESS_OTHER, move |settings| settings.cache = Some(cache));
    wait_for_path(&unused, false).await;

    bed.back_up("running", json!({})).await;
    bed.in_phase::<PodVolumeBackup>("running", "InProgress").await;
    wait_for_path(&bed.path("job"), true).await;
    let used = PathBuf::from(bed.job()["cache"].as_str().unwrap());
    std::fs::write(used.join("index"), vec![1; 64 << 10]).unwrap();
    std::fs::create_dir_all(&unused).unwrap();
    std::fs::write(unused.join("index"), vec![1; 64 << 10]).unwrap();
    // The end of another transfer has the caches checked.
    bed.back_up("other", json!({})).await;
    bed.in_phase::<PodVolumeBackup>("other", "Completed").await;
    wait_for_path(&unused, false).await;
    assert!(used.join("index").exists(), "a transfer uses it");

    bed.let_movers_go_on();
    bed.in_phase::<PodVolumeBackup>("running", "Completed").await;
    wait_for_path(&used, false).await;
    agent.stop().await;
}
