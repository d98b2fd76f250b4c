//! The health checks of a plugin process, and its redirected output.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use plimsoll_progress::Task;
use tonic::Code;

use super::observers::Observers;
use crate::Error;
use crate::connection::Connection;
use crate::log_sink::{LogLevel, LogLine, LogSink, read_lines};
use crate::sanitize::sanitize;
use crate::wire::{CHECK_HEALTH, Empty, HEALTH_SERVICE_NAME, HealthCheckRequest, SERVING, STREAM_STDIO, StdioData};

/// Runs the health checks of a process and reads its redirected output.
pub(super) struct HealthMonitor {
    pub name: String,
    pub connection: Connection,
    pub interval: Duration,
    pub timeout: Duration,
    pub observers: Observers,
    pub logs: Arc<dyn LogSink>,
}

impl HealthMonitor {
    /// Returns when the process is unhealthy. An exit is detected elsewhere.
    pub async fn run(&self) -> Option<Error> {
        tokio::select! {
            error = self.watch_health() => error,
            () = async { self.read_output().await; std::future::pending().await } => None,
        }
    }

    async fn watch_health(&self) -> Option<Error> {
        loop {
            tokio::time::sleep(self.interval).await;
            if let Err(cause) = self.check().await {
                let error = Error::Unhealthy { plugin: self.name.clone(), cause };
                self.observers.for_each(|task| task.liveness_failed(error.to_string()));
                return Some(error);
            }
            self.observers.for_each(Task::liveness_ok);
        }
    }

    async fn check(&self) -> Result<(), String> {
        let request = HealthCheckRequest { service: HEALTH_SERVICE_NAME.to_owned() };
        let call = self.connection.unary(CHECK_HEALTH, request);
        match tokio::time::timeout(self.timeout, call).await {
            Err(_) => Err(format!("no response within {}s", self.timeout.as_secs_f64())),
            Ok(Ok(response)) if response.status == SERVING => Ok(()),
            Ok(Ok(response)) => Err(format!("status {}", response.status)),
            // A plugin without a health service is treated as healthy.
            Ok(Err(status)) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => Ok(()),
            Ok(Err(status)) => Err(sanitize(status.message())),
        }
    }

    /// Reads the output of the plugin, so that it never blocks on a write.
    async fn read_output(&self) {
        let Ok(messages) = self.connection.server_streaming(STREAM_STDIO, Empty {}).await else { return };
        let messages = messages.filter_map(|message| {
            std::future::ready(message.ok().map(|StdioData { data, .. }| Ok::<_, std::io::Error>(Bytes::from(data))))
        });
        let lines = tokio_util::io::StreamReader::new(Box::pin(messages));
        read_lines(lines, |line| {
            let message = sanitize(&String::from_utf8_lossy(line));
            let line = LogLine { plugin: self.name.clone(), level: LogLevel::Info, message, fields: Vec::new() };
            self.logs.line(&line);
        })
        .await;
    }
}
