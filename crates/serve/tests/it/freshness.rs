//! How old what a browser gets is, and what that costs: from the memory of an agent through that of the leader to the stream of the page.
//!
//! A counter that says when it was written makes the age of what is read a subtraction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use plimsoll_observe::Kind;
use plimsoll_progress::{Clock, Meter, Operation, Shown, Task, Total, Trees, Unit};
use plimsoll_serve::{Dashboard, Settings, Token};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::bed::{Bed, NAMESPACE};

/// A hundredth of a percent, which is what is shown, is so long.
const STEP: Duration = Duration::from_millis(10);
const MEASURED: Duration = Duration::from_secs(30);
/// Our own mover tells this often how far it is.
const MOVER_TELLS: Duration = Duration::from_millis(250);
/// The leader looks this often at its copies of the agents' trees.
const LEADER_LOOKS: Duration = Duration::from_millis(200);

struct Simulated {
    _tree: Operation,
    _shown: Shown,
    bytes: Meter,
    uid: String,
}

fn transfer(number: usize, trees: &Trees) -> Simulated {
    let tree = Operation::new(format!("transfer-{number}"), Clock::system());
    let bytes = tree.root().meter(Unit::Bytes);
    bytes.set_total(Total::Final(10_000));
    let (observer, uid) = (tree.observer(), format!("uid-{number}"));
    let shown = trees.show(&uid, move || Some(observer.snapshot()));
    Simulated { _tree: tree, _shown: shown, bytes, uid }
}

fn steps(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis() / STEP.as_millis()).unwrap()
}

/// Seconds of CPU that this process has used.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// An agent with its transfers, found by its Lease.
async fn agent(bed: &Bed, transfers: usize) -> (Vec<Simulated>, plimsoll_serve::Listening) {
    let trees = Trees::default();
    let settings = Settings {
        address: ([127, 0, 0, 1], 0).into(),
        token: Token::random(),
        open_metrics: false,
        may_change: false,
        namespace: NAMESPACE.to_owned(),
        due: |_, _| None,
    };
    let listening = Dashboard::new(bed.client.clone(), settings).with_trees(trees.clone()).only_trees();
    let listening = listening.listen().await.unwrap();
    let lease = json!({ "metadata": { "name": "plimsoll-agent-n",
            "annotations": { "plimsoll.dev/progress-address": listening.address.to_string() } },
        "spec": { "holderIdentity": "n" } });
    let leases: Api<Lease> = Api::namespaced(bed.client.clone(), NAMESPACE);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    ((0..transfers).map(|number| transfer(number, &trees)).collect(), listening)
}

/// What the leader does with its copies.
async fn lead(copies: Trees, tasks: BTreeMap<String, (Task, Meter)>) {
    loop {
        for (uid, (_, bytes)) in &tasks {
            let seen = copies.snapshot(uid).and_then(|tree| Some(tree.root()?.counts(Unit::Bytes)?.done));
            bytes.set_done(seen.unwrap_or(0));
        }
        tokio::time::sleep(LEADER_LOOKS).await;
    }
}

/// Reads the stream of the page; notes how old each number was when it came, and how long it stayed.
async fn read(bed: &Bed, begun: Instant, transfers: usize) -> Vec<Duration> {
    let url = bed.url("/api/operations/backup/velero/b/events");
    let request = reqwest::Client::new().get(url).header("X-Plimsoll-Token", bed.token.reveal());
    let mut answer = request.send().await.unwrap();
    let (mut rest, mut ages, mut last) = (String::new(), Vec::new(), BTreeMap::<String, Duration>::new());
    while begun.elapsed() < MEASURED {
        rest += &String::from_utf8_lossy(&answer.chunk().await.unwrap().expect("the stream goes on"));
        while let Some((event, more)) = rest.split_once("\n\n").map(|(event, more)| (event.to_owned(), more.to_owned()))
        {
            rest = more;
            let Some(data) = event.split("data: ").nth(1) else { continue };
            let told: Value = serde_json::from_str(data).unwrap();
            let now = begun.elapsed();
            for row in told["tree"].as_array().into_iter().flatten().filter(|row| row["depth"] == 1) {
                let percent = row["percent"].as_str().unwrap_or_default().trim_end_matches(" %").parse::<f64>();
                let Ok(percent) = percent else { continue };
                let written = STEP.mul_f64(percent * 100.0);
                // Until this came, the one before it was what a person saw.
                if let Some(before) = last.insert(row["path"].to_string(), written)
                    && now > Duration::from_secs(5)
                {
                    ages.push(now.saturating_sub(before));
                }
            }
        }
    }
    assert!(last.len() >= transfers.min(50), "only {} transfers were shown", last.len());
    ages
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark of half a minute each: hack/run-benches freshness"]
async fn freshness_and_cost_of_the_dashboard() {
    for transfers in [160, 1000] {
        let bed = Bed::new(false).await;
        Token::of_server(&bed.client, NAMESPACE).await.unwrap();
        let (simulated, _agent) = agent(&bed, transfers).await;
        let backup = json!({ "metadata": { "name": "b" }, "status": { "phase": "InProgress" } });
        let uid = bed.create(Kind::Backup, backup).await;
        let backup = Operation::new("backup-b", Clock::system());
        let task = |one: &Simulated| {
            let task = backup.root().child(&one.uid);
            let bytes = task.meter(Unit::Bytes);
            bytes.set_total(Total::Final(10_000));
            (one.uid.clone(), (task, bytes))
        };
        let tasks = simulated.iter().map(task).collect();
        let observer = backup.observer();
        let _shown = bed.trees.show(&uid, move || Some(observer.snapshot()));
        let copies = Trees::default();
        let busy = bed.trees.clone();
        let follow = plimsoll_serve::follow_agents(bed.client.clone(), NAMESPACE.to_owned(), busy, copies.clone());
        let _following = AbortOnDropHandle::new(tokio::spawn(follow));
        let _leading = AbortOnDropHandle::new(tokio::spawn(lead(copies, tasks)));
        let (begun, before) = (Instant::now(), cpu());
        let _moving = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                simulated.iter().for_each(|one| one.bytes.set_done(steps(begun)));
                tokio::time::sleep(MOVER_TELLS).await;
            }
        }));
        let mut ages = read(&bed, begun, transfers).await;
        let cores = (cpu() - before) / begun.elapsed().as_secs_f64();
        ages.sort_unstable();
        let at = |share: usize| ages[(ages.len() - 1) * share / 100];
        println!(
            "{transfers} transfers in the dashboard: at most {:.2?} old, 99 of 100 {:.2?}, half {:.2?}; {cores:.2} cores for agent, leader and reader",
            at(100),
            at(99),
            at(50),
        );
    }
}
