//! Permissions that the caller of a restore does not have.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use plimsoll_progress::Task;

use super::{Preview, PreviewContext};
use crate::restore::plan::RestorePlan;
use crate::{Error, RetryPolicy};

impl PreviewContext {
    /// Checks whether the caller may create the planned objects: in all namespaces at once, otherwise one by one.
    pub(super) async fn find_not_allowed(
        &self,
        found: &mut Preview,
        plan: &RestorePlan,
        task: &Task,
    ) -> Result<(), Error> {
        for (resource, range) in plan.spool.resources() {
            if self.may_create(resource, None, task).await? {
                continue;
            }
            let rows = range.filter_map(|row| plan.spool.row(row));
            let namespaces: BTreeSet<Option<&str>> = rows.map(|row| row.namespace).collect();
            for namespace in namespaces {
                let target = namespace.map(|namespace| self.origin.target(namespace));
                let suffix = target.map(|target| format!(" in namespace {target}")).unwrap_or_default();
                if target.is_none() || !self.may_create(resource, target, task).await? {
                    found.not_allowed.insert(format!("create {resource}{suffix}"));
                }
            }
        }
        Ok(())
    }

    async fn may_create(&self, resource: &str, namespace: Option<&str>, task: &Task) -> Result<bool, Error> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(plural.to_owned()),
            namespace: namespace.map(str::to_owned),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.cluster.client().clone());
        let review_access = || async {
            let answer = api.create(&PostParams::default(), &review).await;
            answer.map_err(|error| Error::api(format!("check whether {resource} may be created"), error))
        };
        match RetryPolicy::default().run(task, review_access).await {
            Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
            // A cluster without authorization allows everything.
            Err(error) if error.code() == Some(404) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
