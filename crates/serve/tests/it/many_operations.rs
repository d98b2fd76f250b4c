//! A thousand operations, all of them moving.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use plimsoll_observe::Kind;
use plimsoll_progress::{Clock, Operation, Total, Unit};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::browser::Page;
use crate::test_bed::TestBed;

const MANY: usize = 1000;

/// Seconds that the page's thread has worked; not those it waited for a processor.
fn worked(metrics: &Value) -> f64 {
    let named = |name: &str| {
        let all = metrics["metrics"].as_array().unwrap().iter();
        all.filter(|metric| metric["name"] == name).filter_map(|metric| metric["value"].as_f64()).sum::<f64>()
    };
    named("ScriptDuration") + named("LayoutDuration") + named("RecalcStyleDuration")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_operations_that_move_stay_smooth() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(false).await;
    let created = stream::iter(0..MANY).map(|number| {
        let backup =
            json!({ "metadata": { "name": format!("backup-{number:04}") }, "status": { "phase": "InProgress" } });
        bed.create(Kind::Backup, backup)
    });
    let uids: Vec<String> = created.buffered(16).collect().await;
    let operations: Vec<Operation> = uids.iter().map(|uid| Operation::new(uid, Clock::system())).collect();
    let operations = Arc::new(operations);
    let _registration: Vec<_> = (uids.iter().zip(operations.iter()))
        .map(|(uid, operation)| {
            operation.root().meter(Unit::Bytes).set_total(Total::Final(u64::MAX >> 20));
            let observer = operation.observer();
            bed.trees.register(uid, move || Some(observer.snapshot()))
        })
        .collect();
    let moving = Arc::clone(&operations);
    let _moving = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            moving.iter().for_each(|operation| operation.root().meter(Unit::Bytes).add(1 << 20));
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }));

    let mut page = Page::open(&chromium, (1360, 860)).await;
    page.visit(&bed.url(&format!("/#token={}", bed.token.reveal()))).await;
    page.until("document.body.innerText.includes('1000 operations')").await;
    page.call("Performance.enable", json!({ "timeDomain": "threadTicks" })).await;
    page.eval(
        "window.texts = new Set(); window.frames_ = 0; window.worst = 0; let last = performance.now();
         const tick = (t) => { frames_ += 1; worst = Math.max(worst, t - last); last = t; texts.add(document.querySelector('.numbers').textContent);
           document.querySelector('.list').scrollTop += 40; requestAnimationFrame(tick); };
         requestAnimationFrame(tick); 0",
    )
    .await;
    let before = page.call("Performance.getMetrics", json!({})).await;
    // So many pictures, each with a thousand new numbers, while the list is scrolled all the time.
    page.until("document.querySelector('.list').scrollTop > 4000 && texts.size >= 8").await;
    let after = page.call("Performance.getMetrics", json!({})).await;
    let (frames, worst) = (page.eval("frames_").await, page.eval("worst").await);
    let spent = worked(&after) - worked(&before);
    let frames = frames.as_f64().unwrap();
    let each = 1000.0 * spent / frames;
    // What is drawn is what can be seen, whatever there is.
    let nodes = page.eval("document.querySelectorAll('.slot').length").await;
    assert!(nodes.as_u64().unwrap() < 60, "{nodes} rows are in the page");
    // Working time, so that a busy machine does not matter. A frame at 60 a second has 16 ms.
    assert!(each < 50.0, "{each:.1} ms of work for each of {frames} frames, the longest gap {worst} ms");
    page.eval("document.querySelector('.list').scrollTop = document.querySelector('.list').scrollHeight").await;
    page.until("[...document.querySelectorAll('.slot')].some(s => s.getAttribute('aria-posinset') === '1000')").await;
    page.picture("thousand").await;
}
