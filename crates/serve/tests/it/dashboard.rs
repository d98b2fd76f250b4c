//! The dashboard in a real browser.

use std::time::Duration;

use plimsoll_observe::Kind;
use plimsoll_progress::{Operation, Total, Unit, VirtualClock};
use plimsoll_testkit::{cache, require};
use serde_json::json;

use crate::browser::Page;
use crate::test_bed::{TestBed, Wire};

const HOSTILE: &str = "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=2</script>";

/// The width of the bar of an operation in the list, in hundredths.
fn bar(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('.row')].find(r => r.dataset.key.endsWith('/{name}'))?.querySelector('[role=progressbar]').getAttribute('aria-valuenow')"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_sees_a_backup_move_a_stall_appear_and_comes_back_after_a_cut() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(false).await;
    let backup = json!({ "metadata": { "name": "nightly" }, "status": { "phase": "InProgress" } });
    let uid = bed.create(Kind::Backup, backup).await;
    let clock = VirtualClock::new();
    let operation = Operation::new("backup-nightly", clock.clock());
    let volume = operation.root().child("data-db-0");
    let bytes = volume.meter(Unit::Bytes);
    bytes.set_total(Total::Final(1000 << 20));
    let observer = operation.observer();
    let _registration = bed.trees.register(&uid, move || Some(observer.snapshot()));
    let step = |to: u64| {
        while bytes.counts().done < to << 20 {
            bytes.add(10 << 20);
            clock.advance(Duration::from_millis(200));
            operation.snapshot();
        }
    };
    step(100);

    let wire = Wire::to(bed.dashboard.address).await;
    let mut page = Page::open(&chromium, (1360, 860)).await;
    page.visit(&format!("http://{}/#token={}", wire.address, bed.token.reveal())).await;
    page.until(&format!("{} >= 5", bar("nightly"))).await;
    assert_eq!(page.eval("location.href.includes('token')").await, json!(false), "the token stays in the address");

    // It moves, without being asked.
    step(500);
    page.until(&format!("{} >= 45", bar("nightly"))).await;
    page.until("document.querySelector('.row .numbers').textContent.includes('MiB/s')").await;
    page.press("j").await;
    page.press("Enter").await;
    page.until("document.querySelector('.tree')?.textContent.includes('data-db-0')").await;
    step(600);
    for (caption, number) in [("Speed", "MiB/s"), ("Time left", "s")] {
        page.until(&format!(
            "[...document.querySelectorAll('.detail figure')].some(f => f.querySelector('figcaption span').textContent === '{caption}'
               && f.querySelector('figcaption b').textContent.endsWith('{number}')
               && f.querySelector('svg polyline').getAttribute('points').split(' ').length >= 2)"
        ))
        .await;
    }
    page.picture("moving-light").await;
    page.scheme("dark").await;
    page.picture("moving-dark").await;
    page.scheme("light").await;
    // The focus follows: into the opened operation, and back to its row.
    page.until("document.activeElement.classList.contains('detail')").await;
    page.press("Escape").await;
    page.until("!document.querySelector('.tree')").await;
    page.until("document.activeElement.dataset.key === 'backup/velero/nightly'").await;
    page.press("j").await;
    page.press("Enter").await;
    page.until("document.querySelector('.tree')?.textContent.includes('data-db-0')").await;
    let announced = page.announced().await;
    let says = |role: &str, name: &str| announced.iter().any(|(r, n)| r == role && n == name);
    assert!(says("list", "Tasks of the operation") && says("StaticText", "Running"), "{announced:?}");
    assert!(
        !announced.iter().any(|(role, _)| role == "treeitem"),
        "an item of a tree that no key reaches: {announced:?}"
    );

    // It stalls: the page shows it first and announces it.
    volume.hint(HOSTILE);
    clock.advance(Duration::from_mins(10));
    page.until("document.querySelector('.row').classList.contains('bad')").await;
    page.until("document.getElementById('spoken').textContent.includes('nightly is stuck')").await;
    page.until("document.querySelector('.tile.bad')").await;
    page.until("document.querySelector('.tree .line.bad')").await;
    let announced = page.announced().await;
    assert!(
        announced.contains(&("StaticText".to_owned(), "Stuck".to_owned())),
        "the stuck task is only red: {announced:?}"
    );
    page.picture("stuck").await;
    page.press("Escape").await;

    // The connection is cut: shown at once. Restored: what was missed arrives, without a reload.
    page.eval("window.mine = 1").await;
    wire.cut();
    page.until("document.getElementById('link').classList.contains('lost')").await;
    step(900);
    wire.restore();
    page.until("document.getElementById('link').classList.contains('live')").await;
    page.until(&format!("{} >= 85", bar("nightly"))).await;
    page.until("!document.querySelector('.tile.bad')").await;
    assert_eq!(page.eval("window.mine").await, json!(1), "the page was loaded again");

    // Text of objects is shown as text everywhere.
    let hostile = json!({ "metadata": { "name": "evil" }, "spec": { "storageLocation": HOSTILE },
        "status": { "phase": "Failed", "failureReason": HOSTILE } });
    bed.create(Kind::Backup, hostile).await;
    let place = json!({ "metadata": { "name": "place" }, "spec": { "provider": "aws", "objectStorage": { "bucket": HOSTILE } },
        "status": { "phase": "Unavailable", "message": HOSTILE } });
    bed.create(Kind::Location, place).await;
    page.until("document.body.innerText.includes('onerror')").await;
    for view in ["#/operation/backup/velero/evil", "#/history", "#/locations"] {
        page.eval(&format!("location.hash = '{view}'")).await;
        page.until("document.querySelector('main').innerText.includes('onerror')").await;
    }
    assert_eq!(
        page.eval("window.pwned === undefined && !document.querySelector('main img, main script')").await,
        json!(true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_allowed_a_click_cancels_and_elsewhere_there_is_no_button() {
    let chromium = require!(cache::system_program("chromium"));
    for allowed in [true, false] {
        let bed = TestBed::new(allowed).await;
        let running = json!({ "metadata": { "name": "running" }, "status": { "phase": "InProgress" } });
        let uid = bed.create(Kind::Backup, running).await;
        let operation = json!({ "metadata": { "name": "backup-running" }, "spec": { "verb": "backup",
            "subject": { "apiVersion": "velero.io/v1", "kind": "Backup", "name": "running", "uid": uid } } });
        bed.create(Kind::Operation, operation).await;
        let mut page = Page::open(&chromium, (1000, 700)).await;
        let start = format!("/#token={}", bed.token.reveal());
        page.visit(&bed.url(&start)).await;
        page.until("document.querySelector('.row')").await;
        page.eval("location.hash = '#/operation/backup/velero/running'").await;
        page.until("document.querySelector('.detail h1')?.textContent.includes('running')").await;
        let button = "document.querySelector('.detail button.danger')";
        if !allowed {
            assert_eq!(page.eval(&format!("!{button} || {button}.hidden")).await, json!(true));
            continue;
        }
        page.until(&format!("{button} && !{button}.hidden")).await;
        page.eval("window.confirm = () => true").await;
        page.eval(&format!("{button}.click()")).await;
        crate::test_bed::eventually("the operation is asked to end", async || {
            bed.get(Kind::Operation, "backup-running").await["spec"]["cancel"] == json!(true)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_allowed_a_click_retries_a_failed_backup_of_a_schedule() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(true).await;
    let labels = json!({ "velero.io/schedule-name": "daily", "team": "shop" });
    let failed = json!({ "metadata": { "name": "daily-1", "labels": labels }, "spec": { "includedNamespaces": ["shop"] },
        "status": { "phase": "Failed", "failureReason": "the disk was full" } });
    bed.create(Kind::Backup, failed).await;
    let mut page = Page::open(&chromium, (1000, 700)).await;
    // A first request that fails does not remove the buttons for good.
    page.call("Network.enable", json!({})).await;
    page.call("Network.setBlockedURLs", json!({ "urls": ["*api/facts*"] })).await;
    page.visit(&bed.url(&format!("/#token={}", bed.token.reveal()))).await;
    page.until("document.querySelector('.row')").await;
    page.eval("location.hash = '#/operation/backup/velero/daily-1'").await;
    page.until("document.querySelector('.detail h1')?.textContent.includes('daily-1')").await;
    let button = "[...document.querySelectorAll('.detail button')].find(b => b.textContent === 'Retry')";
    assert_eq!(
        page.eval(&format!("{button}.hidden")).await,
        json!(true),
        "it is not known yet that changes are allowed"
    );
    page.call("Network.setBlockedURLs", json!({ "urls": [] })).await;
    page.until(&format!("!{button}.hidden")).await;
    page.eval("window.confirm = () => true").await;
    page.eval(&format!("{button}.click()")).await;
    page.until("document.getElementById('toast').textContent.includes('created')").await;
    let names = bed.names(Kind::Backup).await;
    let again = names.iter().find(|name| name.starts_with("daily-1-retry-")).unwrap_or_else(|| panic!("{names:?}"));
    let again = bed.get(Kind::Backup, again).await;
    assert_eq!(again["metadata"]["labels"], labels);
    assert_eq!(again["spec"]["includedNamespaces"], json!(["shop"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_a_browser_gets_a_form_for_it_and_nothing_else() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(false).await;
    bed.create(Kind::Backup, json!({ "metadata": { "name": "nightly" } })).await;
    let mut page = Page::open(&chromium, (900, 700)).await;
    page.visit(&bed.url("/")).await;
    page.until("document.querySelector('#token')").await;
    page.eval("document.querySelector('#token').value = 'wrong'; document.querySelector('form').requestSubmit()").await;
    page.until("document.querySelector('h1')?.textContent.includes('Invalid token')").await;
    assert!(!page.text().await.contains("nightly"));
    let right = format!(
        "document.querySelector('#token').value = '{}'; document.querySelector('form').requestSubmit()",
        bed.token.reveal()
    );
    page.eval(&right).await;
    page.until("document.body.innerText.includes('nightly')").await;
}
