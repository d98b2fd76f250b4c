//! `plimsoll watch`.

use anyhow::bail;
use plimsoll_observe::{Explanation, Overview};
use plimsoll_progress::view::Row;

use crate::args::options::EventFormat;
use crate::args::{Global, Watch};
use crate::events::{Events, Source};
use crate::exit::Outcome;
use crate::observation::ClusterStateWatcher;
use crate::progress_display::ProgressDisplay;
use crate::{connect, draw, observation};

/// Draws the tree of one operation until it has ended.
pub async fn run(global: &Global, options: Watch) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let mut show = match options.events {
        Some(EventFormat::Json) => ProgressOutput::Events(Box::default()),
        None => ProgressOutput::Display { display: ProgressDisplay::new(), said: String::new() },
    };
    let (trees, _following) = observation::leader_trees(&client, &global.namespace);
    let mut states = ClusterStateWatcher::watch(&observation::cluster_reader(&client, global), trees.clone());
    let mut overview = Overview::with_trees(trees.clone());
    let mut begun = false;
    while let Some(cluster) = states.next().await {
        let object = match observation::find(&cluster, &options.reference) {
            Ok(object) => object,
            Err(_) if begun => bail!("{}/{} was deleted", options.reference.kind.word(), options.reference.name),
            Err(error) => return Err(error),
        };
        begun = true;
        let explanation = overview.explain(object, &cluster);
        let ended = explanation.verdict.is_ended();
        let live = object.some_text("/metadata/uid").is_some_and(|uid| trees.snapshot(uid).is_some());
        show.update(object, &explanation, if live { Source::Server } else { Source::Cluster });
        if ended {
            show.end(&explanation);
            return Ok(super::why::outcome(explanation.verdict));
        }
    }
    bail!("the watch ended before the operation did")
}

enum ProgressOutput {
    Display { display: ProgressDisplay, said: String },
    Events(Box<Events>),
}

impl ProgressOutput {
    fn update(&mut self, object: &plimsoll_observe::Object, explanation: &Explanation, source: Source) {
        match self {
            Self::Display { display, said } => {
                let rows: Vec<Row> = observation::rows(explanation, draw::max_rows());
                display.show(&rows);
                if !display.is_drawn() {
                    observation::print_cause(said, Some(explanation));
                }
            }
            Self::Events(events) => events.emit_observed(object, explanation, source),
        }
    }

    fn end(self, explanation: &Explanation) {
        if let Self::Display { display, .. } = self {
            display.clear();
            super::why::print(explanation);
        }
    }
}
