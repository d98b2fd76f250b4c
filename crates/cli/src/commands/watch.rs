//! `plimsoll watch`.

use anyhow::bail;
use plimsoll_observe::{Explanation, Overview};
use plimsoll_progress::view::Row;

use crate::args::options::EventFormat;
use crate::args::{Global, Watch};
use crate::events::{Events, Source};
use crate::exit::Outcome;
use crate::observed::Worlds;
use crate::picture::Picture;
use crate::{connect, draw, observed};

/// Draws the tree of one operation until it has ended.
pub async fn run(global: &Global, options: Watch) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let mut show = match options.events {
        Some(EventFormat::Json) => Show::Events(Box::default()),
        None => Show::Picture { picture: Picture::new(), said: String::new() },
    };
    let (trees, _following) = observed::leaders_trees(&client, &global.namespace);
    let mut worlds = Worlds::watch(&observed::gatherer(&client, global), trees.clone());
    let mut overview = Overview::with_trees(trees.clone());
    let mut begun = false;
    while let Some(world) = worlds.next().await {
        let object = match observed::find(&world, &options.reference) {
            Ok(object) => object,
            Err(_) if begun => bail!("{}/{} was deleted", options.reference.kind.word(), options.reference.name),
            Err(error) => return Err(error),
        };
        begun = true;
        let told = overview.explain(object, &world);
        let ended = told.verdict.is_ended();
        let live = object.some_text("/metadata/uid").is_some_and(|uid| trees.snapshot(uid).is_some());
        show.news(object, &told, if live { Source::Server } else { Source::Cluster });
        if ended {
            show.end(&told);
            return Ok(super::why::outcome(told.verdict));
        }
    }
    bail!("the watch ended before the operation did")
}

enum Show {
    Picture { picture: Picture, said: String },
    Events(Box<Events>),
}

impl Show {
    fn news(&mut self, object: &plimsoll_observe::Object, told: &Explanation, source: Source) {
        match self {
            Self::Picture { picture, said } => {
                let rows: Vec<Row> = observed::rows(told, draw::most_rows());
                picture.show(&rows);
                if !picture.is_drawn() {
                    observed::say_cause(said, Some(told));
                }
            }
            Self::Events(events) => events.tell_observed(object, told, source),
        }
    }

    fn end(self, told: &Explanation) {
        if let Self::Picture { picture, .. } = self {
            picture.wipe();
            super::why::print(told);
        }
    }
}
