//! A plugin directory, and what its plugins said.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use plimsoll_plugin::{Catalog, Environment, Gravity, Launch, LogLine, LogSink, Supervision};
use plimsoll_testkit::{Unavailable, cache};
use tempfile::TempDir;

/// The plugin on Velero's own framework.
pub fn go_plugin() -> Result<Bed, Unavailable> {
    Ok(Bed::new().link(&cache::program("velero-test-plugin")?))
}

/// A plugin directory.
pub struct Bed {
    pub directory: TempDir,
    pub supervision: Supervision,
    pub logs: Arc<Kept>,
}

impl Bed {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), supervision: Supervision::default(), logs: Arc::default() }
    }

    /// Puts a program into it.
    pub fn link(self, program: &Path) -> Self {
        std::os::unix::fs::symlink(program, self.directory.path().join(program.file_name().unwrap())).unwrap();
        self
    }

    /// Puts a shell script into it.
    pub fn script(self, name: &str, text: &str) -> Self {
        let path = self.directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    pub fn supervised(mut self, supervision: Supervision) -> Self {
        self.supervision = supervision;
        self
    }

    pub async fn catalog(&self) -> Catalog {
        let launch = Launch {
            environment: Environment::of_this_process("velero", &[]),
            arguments: vec!["--log-level".into(), "info".into()],
            supervision: self.supervision.clone(),
            ..Launch::default()
        };
        Catalog::discover(self.directory.path(), launch).await
    }

    pub fn sink(&self) -> Arc<dyn LogSink> {
        self.logs.clone()
    }
}

/// The lines of plugins.
#[derive(Default)]
pub struct Kept(Mutex<Vec<LogLine>>);

impl LogSink for Kept {
    fn line(&self, line: &LogLine) {
        self.0.lock().unwrap().push(line.clone());
    }
}

impl Kept {
    /// Waits for a line that contains a text, and says how grave it is.
    pub async fn gravity_of(&self, text: &str) -> Gravity {
        let find = || async {
            let lines = self.0.lock().unwrap();
            Ok::<_, String>(lines.iter().find(|line| line.message.contains(text)).map(|line| line.gravity))
        };
        plimsoll_testkit::wait::until(text, std::time::Duration::from_mins(1), find).await.unwrap()
    }

    pub fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(LogLine::text).collect()
    }
}
