//! A plugin directory and the log lines of its plugins.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use plimsoll_plugin::{Environment, LaunchConfig, LogLevel, LogLine, LogSink, PluginRegistry, Supervision};
use plimsoll_testkit::{Unavailable, cache};
use tempfile::TempDir;

/// A directory with the test plugin that uses Velero's framework.
pub fn go_plugin() -> Result<PluginDirectory, Unavailable> {
    Ok(PluginDirectory::new().link(&cache::program("velero-test-plugin")?))
}

/// A plugin directory.
pub struct PluginDirectory {
    pub directory: TempDir,
    pub supervision: Supervision,
    pub logs: Arc<RecordedLogs>,
}

impl PluginDirectory {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), supervision: Supervision::default(), logs: Arc::default() }
    }

    /// Adds a program.
    pub fn link(self, program: &Path) -> Self {
        std::os::unix::fs::symlink(program, self.directory.path().join(program.file_name().unwrap())).unwrap();
        self
    }

    /// Adds a shell script.
    pub fn script(self, name: &str, text: &str) -> Self {
        let path = self.directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    pub fn with_supervision(mut self, supervision: Supervision) -> Self {
        self.supervision = supervision;
        self
    }

    pub async fn registry(&self) -> PluginRegistry {
        let launch = LaunchConfig {
            environment: Environment::from_process("velero", &[]),
            arguments: vec!["--log-level".into(), "info".into()],
            supervision: self.supervision.clone(),
            ..LaunchConfig::default()
        };
        PluginRegistry::discover(self.directory.path(), launch).await
    }

    pub fn sink(&self) -> Arc<dyn LogSink> {
        self.logs.clone()
    }
}

/// The log lines of plugins.
#[derive(Default)]
pub struct RecordedLogs(Mutex<Vec<LogLine>>);

impl LogSink for RecordedLogs {
    fn line(&self, line: &LogLine) {
        self.0.lock().unwrap().push(line.clone());
    }
}

impl RecordedLogs {
    /// Waits for a line that contains a text; returns its level.
    pub async fn level_of(&self, text: &str) -> LogLevel {
        let find = || async {
            let lines = self.0.lock().unwrap();
            Ok::<_, String>(lines.iter().find(|line| line.message.contains(text)).map(|line| line.level))
        };
        plimsoll_testkit::wait::until(text, std::time::Duration::from_mins(1), find).await.unwrap()
    }

    pub fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(LogLine::text).collect()
    }
}
