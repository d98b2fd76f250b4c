//! The demo, as it is shown to people, with less to carry.

use crate::bed::plimsoll;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_loses_everything_gets_it_back_and_names_the_transfer_that_hangs() {
    let shown = plimsoll().args(["demo", "--objects", "60", "--megabytes", "48"]).output().await.unwrap();
    let (text, errors) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    assert!(shown.status.success(), "{text}\n{errors}");
    for part in [
        "an application: namespace shop with 60 objects",
        "backup demo: Completed",
        "restore demo: Completed",
        "all 60 objects are back as they were, and all files",
        "its artifact says: 1200 rows",
        "backup second: Completed",
        "named after",
        "nothing was lost",
    ] {
        assert!(text.contains(part), "nobody said {part:?}:\n{text}\n{errors}");
    }
}
