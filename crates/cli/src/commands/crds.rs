//! `plimsoll crds`.

use anyhow::Context;

use crate::args::options::ObjectFormat;
use crate::args::{Crds, Global};
use crate::exit::Outcome;
use crate::{connect, output};

/// Prints or installs the custom resource definitions.
pub async fn run(global: &Global, verb: Crds) -> anyhow::Result<Outcome> {
    match verb {
        Crds::Print => {
            for crd in plimsoll_api::crds() {
                output::line("---");
                output::object(&crd, ObjectFormat::Yaml)?;
            }
        }
        Crds::Apply => {
            let client = connect::client(global).await?;
            plimsoll_controllers::install_crds(client)
                .await
                .context("cannot install the custom resource definitions")?;
            output::line(format!("{} custom resource definitions installed and served", plimsoll_api::crds().len()));
        }
    }
    Ok(Outcome::Success)
}
