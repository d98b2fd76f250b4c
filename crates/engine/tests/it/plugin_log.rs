//! Log lines of plugins in the log of the operation.

use std::sync::Arc;

use plimsoll_engine::PluginLogSink;
use plimsoll_engine::log::Level;
use plimsoll_engine::outcome::Recorder;

#[test]
fn lines_are_recorded_before_and_after_attaching() {
    let (scratch, plugin_log) = (tempfile::tempdir().unwrap(), PluginLogSink::default());
    plugin_log.line(Level::Warning, "early".to_owned());
    let recorder = Arc::new(Recorder::create(scratch.path()).unwrap());
    plugin_log.attach(&recorder);
    plugin_log.line(Level::Error, "bad".to_owned());
    plugin_log.line(Level::Info, "said".to_owned());
    assert_eq!(recorder.counts(), (1, 1));
    plugin_log.detach();
    plugin_log.line(Level::Error, "late".to_owned());
    assert!(Arc::into_inner(recorder).is_some(), "a recorder can be closed while plugins still log");
}
