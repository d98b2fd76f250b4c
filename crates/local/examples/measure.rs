//! Measures latency and memory of the embedded API: `measure [objects] [directory]`.
//!
//! The client that drives it runs in the same process, so its memory is counted too; lists are read in pages.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people who measure")]

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use plimsoll_local::Api;
use serde_json::json;
use std::time::Instant;

/// Resident memory of this process in megabytes: now and at its highest.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    (field("VmRSS"), field("VmHWM"))
}

fn report(what: &str, count: usize, since: Instant) {
    let seconds = since.elapsed().as_secs_f64();
    let (now, peak) = resident();
    let rate = f64::from(u32::try_from(count).unwrap()) / seconds;
    println!("{what:<32} {count:>7} in {seconds:>7.2} s  {rate:>9.0}/s  resident {now} MB, peak {peak} MB");
}

fn small(number: usize) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": format!("object-{number:06}"), "labels": {"app": "measure", "shard": (number % 16).to_string()}},
        "data": {"key": "x".repeat(200)},
    }))
    .unwrap()
}

async fn create(maps: &kube::Api<ConfigMap>, from: usize, count: usize, at_once: usize) {
    stream::iter(from..from + count)
        .for_each_concurrent(at_once, |number| async move {
            maps.create(&PostParams::default(), &small(number)).await.unwrap();
        })
        .await;
}

async fn list_in_pages(maps: &kube::Api<ConfigMap>) -> usize {
    let (mut count, mut token) = (0, String::new());
    loop {
        let page = maps.list(&ListParams::default().limit(500).continue_token(&token)).await.unwrap();
        count += page.items.len();
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => token = next,
            _ => return count,
        }
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let objects = arguments.next().map_or(100_000, |number| number.parse().unwrap());
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("plimsoll-measure"), Into::into);
    let _ = std::fs::remove_dir_all(&directory);
    let api = Api::open(&directory).await.unwrap();
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(api.client("default"), "default");
    let started = Instant::now();
    create(&maps, 0, 500, 1).await;
    report("create, one at a time", 500, started);
    let started = Instant::now();
    create(&maps, 500, objects - 500, 64).await;
    report("create, 64 at a time", objects - 500, started);
    let started = Instant::now();
    for number in 0..10_000 {
        maps.get(&format!("object-{:06}", number % objects)).await.unwrap();
    }
    report("get", 10_000, started);
    let started = Instant::now();
    let count = list_in_pages(&maps).await;
    report("objects listed, pages of 500", count, started);
    let started = Instant::now();
    for _ in 0..50 {
        maps.list(&ListParams::default().limit(1)).await.unwrap();
        maps.list(&ListParams::default().fields("metadata.name=object-000007")).await.unwrap();
    }
    report("lists of one", 100, started);
    drop(maps);
    api.close().await;
    let _ = std::fs::remove_dir_all(&directory);
}
