//! `plimsoll top`: every operation, live.
//!
//! ```text
//!   Live ── a world a second ──► Overview ──► App (what is chosen, sorted, open) ──► screen
//!   keys ─────────────────────────────────────┘ └──► deeds: fetch a log, cancel what may be cancelled
//! ```

mod app;
mod canvas;
mod deeds;
mod keys;
mod list;
mod picture;
mod terminal;

use std::time::Duration;

use anyhow::Context;
use plimsoll_observe::{Overview, Verdict};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::app::{App, Deed};
#[cfg(test)]
pub use self::list::Cells;
use self::terminal::{Screen, Taken};
use crate::args::{Global, Top, TopFormat};
use crate::exit::Outcome;
use crate::{connect, observed, output};

/// Shows everything.
pub async fn run(global: &Global, options: Top) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    if options.is_drawn() {
        return drawn(global, client, &options).await;
    }
    let world = observed::gatherer(&client, global).read().await;
    let mut lines = Overview::default().list_operations(&world);
    lines.retain(|line| list::matches(line, &options.filter));
    if options.output == Some(TopFormat::Json) {
        output::line(serde_json::to_string_pretty(&json!({ "operations": lines, "unseen": world.unseen }))?);
    } else {
        list::plain(&lines, &world).iter().for_each(output::line);
    }
    let stuck = lines.iter().any(|line| line.explanation.verdict == Verdict::Stuck);
    Ok(if stuck { Outcome::Stuck } else { Outcome::Success })
}

async fn drawn(global: &Global, client: kube::Client, options: &Top) -> anyhow::Result<Outcome> {
    let mut terminations = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut hangups = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let (trees, _following) = observed::leaders_trees(&client, &global.namespace);
    let mut worlds = observed::Worlds::watch(&observed::gatherer(&client, global), trees.clone());
    let mut overview = Overview::with_trees(trees);
    let mut app = App::new(&global.namespace, &options.filter);
    let deeds = deeds::Deeds::new(client);
    let mut resizes = signal(SignalKind::window_change()).context("cannot listen for signals")?;
    let _taken = Taken::take().context("cannot draw on this terminal")?;
    let mut screen = Screen::default();
    let keys = terminal::keys();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut changed = true;
    loop {
        if changed {
            let mut canvas = Screen::canvas()?;
            picture::draw(&mut canvas, &mut app);
            screen.show(canvas)?;
        }
        tokio::select! {
            world = worlds.next() => {
                let Some(world) = world else { continue };
                app.take(overview.list_operations(&world), &world);
                changed = true;
            }
            _ = terminations.recv() => return Ok(Outcome::Success),
            _ = interrupts.recv() => return Ok(Outcome::Success),
            _ = hangups.recv() => return Ok(Outcome::Success),
            // Whatever the terminal made of the old picture is wiped.
            _ = resizes.recv() => {
                screen.forget();
                changed = true;
            }
            _ = ticks.tick() => {
                changed = deeds.results(&mut app);
                while let Ok(key) = keys.try_recv() {
                    changed = true;
                    match app.key(key) {
                        Deed::None => {}
                        Deed::Quit => return Ok(Outcome::Success),
                        deed => deeds.start(deed, &app),
                    }
                }
            }
        }
    }
}
