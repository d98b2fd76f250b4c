//! `plimsoll repo stats` and `plimsoll repo prune`: how much of a repository is used, and freeing the rest.

use anyhow::bail;
use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::watcher;
use plimsoll_api::client_error::error_text;
use plimsoll_api::velero::v1::{BackupRepository, MaintenanceResult, RepositoryMaintenance};
use plimsoll_mover::{MaintenanceOutcome, RepositoryUsage};
use plimsoll_progress::view::{duration_text, size_text};
use plimsoll_progress::{Clock, Operation};
use plimsoll_volumes::repositories::RequestKind;

use super::delete::ask_to_continue;
use super::repo::RepositoryClient;
use crate::args::repo::{RepoPrune, RepoStats};
use crate::describe::page::Page;
use crate::exit::Outcome;
use crate::output;
use crate::progress_display::ProgressDisplay;

impl RepositoryClient<'_> {
    pub(super) async fn stats(&self, options: &RepoStats) -> anyhow::Result<Outcome> {
        for (index, repository) in self.chosen(&options.names).await?.iter().enumerate() {
            if index > 0 {
                output::line("");
            }
            let plan = self.send_request(repository, RequestKind::PlanMaintenance, &options.answer).await?;
            let plan = plan.maintenance.unwrap_or_default();
            page(&repository.name_any(), &plan).into_iter().for_each(output::line);
        }
        Ok(Outcome::Success)
    }

    pub(super) async fn prune(&self, options: &RepoPrune) -> anyhow::Result<Outcome> {
        let repository = self.api().get(&options.name).await?;
        let answer = self.send_request(&repository, RequestKind::PlanMaintenance, &options.answer).await?;
        let plan = answer.maintenance.unwrap_or_default();
        page(&options.name, &plan).into_iter().for_each(output::line);
        if options.dry_run {
            return Ok(Outcome::Success);
        }
        if plan.mode.is_none() && plan.freed == Some(0) && plan.moved == Some(0) {
            output::line("Nothing to free.");
            return Ok(Outcome::Success);
        }
        if !options.confirm && !ask_to_continue(&question(&options.name, &plan))? {
            return Ok(Outcome::Success);
        }
        let before = last_run(&repository);
        self.send_request(&repository, RequestKind::Maintain, &options.answer).await?;
        let operation = Operation::new(format!("maintenance of {}", options.name), Clock::system());
        let _waiting = operation.root().wait("waiting for the server to complete the maintenance");
        let ended = tokio::time::timeout(options.answer.timeout, self.next_run(&options.name, before.as_ref()));
        let Ok(ended) = ProgressDisplay::on_terminal_only().show_while(&operation, ended).await else {
            let timeout = duration_text(options.answer.timeout);
            bail!(
                "the maintenance of repository {} has not ended within {timeout}; it continues on the server: see plimsoll repo get",
                options.name
            );
        };
        let run = ended?;
        let message = run.message.unwrap_or_default();
        if run.result == Some(MaintenanceResult::Failed) {
            bail!("maintenance of repository {} failed: {message}", options.name);
        }
        output::line(format!("{}: {message}", options.name));
        Ok(Outcome::Success)
    }

    /// The first maintenance that is recorded after `before`.
    async fn next_run(
        &self,
        name: &str,
        before: Option<&RepositoryMaintenance>,
    ) -> anyhow::Result<RepositoryMaintenance> {
        let mut changes = std::pin::pin!(watcher::watch_object(self.api(), name));
        while let Some(change) = changes.next().await {
            match change {
                Ok(None) => bail!("repository {name} was deleted before its maintenance ended"),
                Ok(Some(repository)) => {
                    if let Some(run) = last_run(&repository).filter(|run| Some(run) != before) {
                        return Ok(run);
                    }
                }
                Err(error) => tracing::warn!("watch failed, retrying: {}", error_text(&error)),
            }
        }
        bail!("the watch ended before the maintenance")
    }
}

fn last_run(repository: &BackupRepository) -> Option<RepositoryMaintenance> {
    repository.status.as_ref()?.recent_maintenance.last().cloned()
}

fn question(name: &str, plan: &MaintenanceOutcome) -> String {
    match (&plan.mode, plan.freed) {
        (None, Some(freed)) => format!("This frees {} in repository {name}.", size_text(freed)),
        (mode, _) => {
            format!("This runs kopia maintenance ({}) on repository {name}.", mode.as_deref().unwrap_or("full"))
        }
    }
}

/// How much is used, and why the rest is stored.
fn page(name: &str, plan: &MaintenanceOutcome) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| {
        section.field("Name", name);
        if let Some(mode) = &plan.mode {
            section.field("Next maintenance", format!("kopia maintenance ({mode})"));
            section.field("Usage", "not reported by kopia");
        }
        if let Some(usage) = &plan.usage {
            for (name, value) in usage_fields(usage) {
                section.field(name, value);
            }
        }
        if let Some(moved) = plan.moved.filter(|moved| *moved > 0) {
            section.field("Moved by a prune", size_text(moved));
        }
    });
    page.lines()
}

fn usage_fields(usage: &RepositoryUsage) -> Vec<(&'static str, String)> {
    let part = |bytes: u64| match usage.stored {
        0 => size_text(bytes),
        stored => format!("{} ({} %)", size_text(bytes), u128::from(bytes) * 100 / u128::from(stored)),
    };
    let mut fields = vec![
        ("Snapshots", usage.snapshots.to_string()),
        ("Stored", size_text(usage.stored)),
        ("Used by snapshots", part(usage.used)),
        ("Freed by a prune", part(usage.freeable)),
        ("Unused, in packs with used data", part(usage.tolerated)),
    ];
    if usage.recent > 0 {
        fields.push(("In no index file, and recent", part(usage.recent)));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_what_is_used_and_what_a_prune_frees() {
        let usage = RepositoryUsage {
            snapshots: 3,
            stored: 4 << 30,
            used: 2 << 30,
            freeable: 1 << 30,
            tolerated: 1 << 30,
            recent: 0,
        };
        let plan = MaintenanceOutcome {
            usage: Some(usage),
            freed: Some(1 << 30),
            moved: Some(1 << 20),
            ..MaintenanceOutcome::default()
        };
        let text = page("shop-default-restic", &plan).join("\n");
        for expected in ["shop-default-restic", "2.0 GiB (50 %)", "1.0 GiB (25 %)", "1.0 MiB"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(question("r", &plan), "This frees 1.0 GiB in repository r.");
        let kopia = MaintenanceOutcome { mode: Some("quick".into()), ..MaintenanceOutcome::default() };
        assert!(page("r", &kopia).join("\n").contains("kopia maintenance (quick)"));
        assert_eq!(question("r", &kopia), "This runs kopia maintenance (quick) on repository r.");
    }
}
