//! Requests of a restore: limited concurrency, retries, and a shorter limit for unreachable webhooks.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plimsoll_progress::Task;
use tokio::time::Instant;

use super::run::{RestoreRun, failed};
use crate::outcome::ItemOutcome;
use crate::{Error, RetryPolicy};

/// Unreachable webhooks, and the time of the first failure.
#[derive(Default)]
pub(super) struct Webhooks {
    unreachable_since: Mutex<HashMap<String, Instant>>,
}

impl Webhooks {
    /// Turns the error into a permanent one if its webhook has been unreachable for too long, so that other items do not wait.
    fn check(&self, error: Error, limit: Duration) -> Error {
        let Some(webhook) = error.status().and_then(|status| unreachable_webhook(&status.message)) else {
            return error;
        };
        let webhook = webhook.to_owned();
        let now = Instant::now();
        let since = {
            let mut unreachable_since = self.unreachable_since.lock().unwrap_or_else(PoisonError::into_inner);
            *unreachable_since.entry(webhook.clone()).or_insert(now)
        };
        match error {
            Error::Api { what, source } if now.duration_since(since) >= limit => {
                Error::Webhook { what, webhook, detail: source.to_string() }
            }
            error => error,
        }
    }
}

/// The name of the webhook that the API server could not call.
fn unreachable_webhook(message: &str) -> Option<&str> {
    let rest = message.split_once("failed calling webhook \"")?.1;
    rest.split_once('"').map(|(name, _)| name)
}

/// The name of the webhook that denied the request.
fn denying_webhook(message: &str) -> Option<&str> {
    let rest = message.split_once("admission webhook \"")?.1;
    rest.split_once("\" denied the request").map(|(name, _)| name)
}

impl RestoreRun {
    /// Sends a request, with retries. During a pause `task` waits, with the reason.
    pub(super) async fn send<T, F>(&self, task: &Task, attempt: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let once = || async {
            let permit = self.state.limiter.acquire().await;
            let answer = attempt().await;
            permit.complete(answer.as_ref().is_err_and(|error| error.code() == Some(429)));
            answer.map_err(|error| self.state.webhooks.check(error, self.rules.timeouts.webhook))
        };
        RetryPolicy::default().run(task, once).await
    }
}

/// Turns a failed request into the outcome of an item. Other errors end the restore.
pub(super) fn outcome_of(error: Error) -> Result<ItemOutcome, Error> {
    let reason = match &error {
        Error::Api { .. } => reason_of(&error),
        Error::InvalidResponse { .. } | Error::Webhook { .. } => error.reason(),
        _ => return Err(error),
    };
    let hint = match error.code() {
        Some(404) => " (the cluster does not serve this kind; is a CustomResourceDefinition missing?)",
        _ => "",
    };
    Ok(failed(reason, format!("{error}{hint}")))
}

fn reason_of(error: &Error) -> &'static str {
    let Some(status) = error.status() else { return error.reason() };
    match status.code {
        _ if denying_webhook(&status.message).is_some() => "WebhookDenied",
        403 => "Forbidden",
        404 => "KindNotServed",
        409 => "Conflict",
        422 => "Invalid",
        _ => error.reason(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(code: u16, message: &str) -> Error {
        let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
        Error::api("create x", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn webhook_names_are_read_from_messages() {
        assert_eq!(
            unreachable_webhook(
                "Internal error occurred: failed calling webhook \"policy.example.com\": Post: refused"
            ),
            Some("policy.example.com")
        );
        assert_eq!(
            denying_webhook("admission webhook \"p.example.com\" denied the request: no"),
            Some("p.example.com")
        );
        assert_eq!(denying_webhook("quota"), None);
        let denied = outcome_of(rejected(400, "admission webhook \"p\" denied the request: no")).unwrap();
        assert!(matches!(denied, ItemOutcome::Failed { reason, .. } if reason == "WebhookDenied"));
    }

    #[tokio::test]
    async fn the_wait_for_an_unreachable_webhook_is_shared_by_all_items() {
        let webhooks = Webhooks::default();
        let error = || rejected(500, "failed calling webhook \"p\": connection refused");
        assert!(webhooks.check(error(), Duration::from_hours(1)).is_retryable());
        let last = webhooks.check(error(), Duration::ZERO);
        assert_eq!((last.is_retryable(), last.reason()), (false, "WebhookUnavailable"));
        let another = rejected(500, "failed calling webhook \"q\": connection refused");
        assert!(webhooks.check(another, Duration::from_hours(1)).is_retryable(), "every webhook has its own limit");
    }
}
