//! Requests of a restore: at the API server's pace, patient with one that restarts, not with a webhook that never answers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plimsoll_progress::Task;
use tokio::time::Instant;

use super::run::{RestoreRun, failed};
use crate::outcome::ItemOutcome;
use crate::{Error, Patience};

/// Webhooks that could not be called, and since when.
#[derive(Default)]
pub(super) struct Webhooks {
    broken: Mutex<HashMap<String, Instant>>,
}

impl Webhooks {
    /// The error, made final once its webhook has been out of reach for too long: the items behind need not wait again.
    fn judge(&self, error: Error, limit: Duration) -> Error {
        let Some(webhook) = error.status().and_then(|status| unreachable_webhook(&status.message)) else {
            return error;
        };
        let webhook = webhook.to_owned();
        let now = Instant::now();
        let since = {
            let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
            *broken.entry(webhook.clone()).or_insert(now)
        };
        match error {
            Error::Api { what, source } if now.duration_since(since) >= limit => {
                Error::Webhook { what, webhook, detail: source.to_string() }
            }
            error => error,
        }
    }
}

/// The webhook that an answer of the API server says it could not call.
fn unreachable_webhook(message: &str) -> Option<&str> {
    let rest = message.split_once("failed calling webhook \"")?.1;
    rest.split_once('"').map(|(name, _)| name)
}

/// The webhook that an answer of the API server says it was refused by.
fn refusing_webhook(message: &str) -> Option<&str> {
    let rest = message.split_once("admission webhook \"")?.1;
    rest.split_once("\" denied the request").map(|(name, _)| name)
}

impl RestoreRun {
    /// Sends one request, again if that can help. While it pauses, `task` waits, with the reason.
    pub(super) async fn send<T, F>(&self, task: &Task, attempt: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let once = || async {
            let turn = self.inner.pace.enter().await;
            let answer = attempt().await;
            turn.answered(answer.as_ref().is_err_and(|error| error.code() == Some(429)));
            answer.map_err(|error| self.inner.webhooks.judge(error, self.rules.limits.webhook))
        };
        Patience::default().run(task, once).await
    }
}

/// A refused item is an outcome; a process that may not act any more is not.
pub(super) fn outcome_of(error: Error) -> Result<ItemOutcome, Error> {
    let reason = match &error {
        Error::Api { .. } => reason_of(&error),
        Error::Answer { .. } | Error::Webhook { .. } => error.reason(),
        _ => return Err(error),
    };
    let hint = match error.code() {
        Some(404) => " (its kind is not served here: is a CustomResourceDefinition missing?)",
        _ => "",
    };
    Ok(failed(reason, format!("{error}{hint}")))
}

fn reason_of(error: &Error) -> &'static str {
    let Some(status) = error.status() else { return error.reason() };
    match status.code {
        _ if refusing_webhook(&status.message).is_some() => "WebhookDenied",
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

    fn refused(code: u16, message: &str) -> Error {
        let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
        Error::api("create x", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_webhook_is_named_whether_it_refuses_or_cannot_be_reached() {
        assert_eq!(
            unreachable_webhook(
                "Internal error occurred: failed calling webhook \"policy.example.com\": Post: refused"
            ),
            Some("policy.example.com")
        );
        assert_eq!(
            refusing_webhook("admission webhook \"p.example.com\" denied the request: no"),
            Some("p.example.com")
        );
        assert_eq!(refusing_webhook("quota"), None);
        let denied = outcome_of(refused(400, "admission webhook \"p\" denied the request: no")).unwrap();
        assert!(matches!(denied, ItemOutcome::Failed { reason, .. } if reason == "WebhookDenied"));
    }

    #[tokio::test]
    async fn a_webhook_out_of_reach_is_waited_for_once_not_by_every_item() {
        let webhooks = Webhooks::default();
        let error = || refused(500, "failed calling webhook \"p\": connection refused");
        assert!(webhooks.judge(error(), Duration::from_hours(1)).is_retryable());
        let last = webhooks.judge(error(), Duration::ZERO);
        assert_eq!((last.is_retryable(), last.reason()), (false, "WebhookUnavailable"));
        let another = refused(500, "failed calling webhook \"q\": connection refused");
        assert!(webhooks.judge(another, Duration::from_hours(1)).is_retryable(), "another one has its own time");
    }
}
