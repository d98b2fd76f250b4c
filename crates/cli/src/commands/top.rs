//! `plimsoll top`: all operations, live.
//!
//! ```text
//!   ClusterWatch ── a state a second ──► Overview ──► App (selection, order, open view) ──► screen
//!   keys ───────────────────────────────────────────────┘ └──► actions: fetch a log, cancel an operation
//! ```

mod actions;
mod app;
mod list;
mod render;
mod table;
mod terminal;
mod text;

use std::time::Duration;

use anyhow::Context;
use plimsoll_observe::{Overview, Verdict};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::app::{App, UserAction};
#[cfg(test)]
pub use self::list::Cells;
use self::terminal::{Input, Screen};
use crate::args::{Global, Top, TopFormat};
use crate::exit::Outcome;
use crate::{connect, observation, output};

/// Shows all operations.
pub async fn run(global: &Global, options: Top) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    if options.is_drawn() {
        return drawn(global, client, &options).await;
    }
    let cluster = observation::cluster_reader(&client, global).read().await;
    let mut lines = Overview::default().list_operations(&cluster);
    lines.retain(|line| list::matches(line, &options.filter));
    if options.output == Some(TopFormat::Json) {
        output::line(serde_json::to_string_pretty(&json!({ "operations": lines, "unseen": cluster.unseen }))?);
    } else {
        list::plain_table(&lines, &cluster).iter().for_each(output::line);
    }
    let stuck = lines.iter().any(|line| line.explanation.verdict == Verdict::Stuck);
    Ok(if stuck { Outcome::Stuck } else { Outcome::Success })
}

async fn drawn(global: &Global, client: kube::Client, options: &Top) -> anyhow::Result<Outcome> {
    let mut terminations = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut hangups = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let (trees, _following) = observation::leader_trees(&client, &global.namespace);
    let mut states =
        observation::ClusterStateWatcher::watch(&observation::cluster_reader(&client, global), trees.clone());
    let mut overview = Overview::with_trees(trees);
    let mut app = App::new(&global.namespace, &options.filter);
    let actions = actions::ActionRunner::new(client);
    let mut screen = Screen::open().context("cannot draw on this terminal")?;
    let mut inputs = terminal::inputs();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut changed = true;
    loop {
        if changed {
            screen.draw(&mut app)?;
        }
        tokio::select! {
            cluster = states.next() => {
                let Some(cluster) = cluster else { continue };
                app.update(overview.list_operations(&cluster), &cluster);
                changed = true;
            }
            _ = terminations.recv() => return Ok(Outcome::Success),
            _ = interrupts.recv() => return Ok(Outcome::Success),
            _ = hangups.recv() => return Ok(Outcome::Success),
            input = inputs.recv() => {
                changed = true;
                match input {
                    Some(Input::Key(key)) => match app.key(key) {
                        UserAction::None => {}
                        UserAction::Quit => return Ok(Outcome::Success),
                        action => actions.start(action, &app),
                    },
                    Some(Input::Resize(width, height)) => screen.resize((width, height))?,
                    Some(Input::Interrupt) | None => return Ok(Outcome::Success),
                }
            }
            _ = ticks.tick() => changed = actions.results(&mut app),
        }
    }
}
