//! Blueprint and Profile: whether they can be used, recorded as Events. They have no status.

use std::sync::Arc;

use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::kanister::v1alpha1::{Blueprint, Profile};
use plimsoll_blueprint::params;
use plimsoll_blueprint::validate::{Severity, validate};
use plimsoll_engine::Error;
use plimsoll_operations::controller::run_controller;
use plimsoll_operations::{EventType, LeaderClient};

/// Looks at every Blueprint and every Profile when it changes, until the future is dropped.
pub async fn control(leader: Arc<LeaderClient>) {
    tokio::join!(
        run_controller(&leader, Arc::clone(&leader), check_blueprint),
        run_controller(&leader, Arc::clone(&leader), check_profile),
    );
}

async fn check_blueprint(blueprint: Arc<Blueprint>, leader: Arc<LeaderClient>) -> Result<Action, Error> {
    let raw = serde_json::to_value(&*blueprint).unwrap_or_default();
    let errors = validate(&raw).into_iter().filter(|finding| finding.severity == Severity::Error);
    let faults: Vec<_> = errors.map(|finding| format!("{}: {}", finding.location, finding.message)).collect();
    if !faults.is_empty() && blueprint.metadata.deletion_timestamp.is_none() {
        let about = blueprint.object_ref(&());
        leader.events.record(&about, EventType::Warning, "InvalidBlueprint", &faults.join("; ")).await;
    }
    Ok(Action::await_change())
}

async fn check_profile(profile: Arc<Profile>, leader: Arc<LeaderClient>) -> Result<Action, Error> {
    if profile.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    match params::open_profile(&leader.client, &profile).await {
        Ok(_) => {}
        Err(error) if error.is_retryable() => tracing::warn!("profile {}: {error}", profile.name_any()),
        Err(error) => {
            let about = profile.object_ref(&());
            leader.events.record(&about, EventType::Warning, "InvalidProfile", &error.to_string()).await;
        }
    }
    Ok(Action::await_change())
}
