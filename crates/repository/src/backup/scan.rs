//! Scans the targets ahead of the walk to find the total. Its errors are ignored.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::FileType;

use super::options::Target;
use super::run::Run;
use super::source::{Folder, Source, Stat};
use super::totals::Amount;

/// The number of files after which the totals are updated within a directory.
const UPDATE_INTERVAL: u64 = 1000;

/// Scans the targets once that is useful. The totals grow meanwhile and are final at the end. An aborted scan has no total.
pub(super) fn scan(run: &Run<'_>) {
    let (started, delay) = (Instant::now(), run.options.count_ahead_after);
    run.queue.wait_until_full(|| is_obsolete(run) || started.elapsed() >= delay);
    if is_obsolete(run) {
        return;
    }
    let complete = match &run.options.target {
        Target::Content(path) | Target::Placed { directory: path, only: None, .. } => scan_content(run, path),
        Target::Placed { directory, only: Some(name), .. } => scan_entry(run, directory, name),
        Target::Paths(paths) => paths.iter().all(|path| scan_path(run, path)),
    };
    if complete {
        run.meters.all_scanned();
    }
}

/// Scans the content of a directory, which may be a link. Like the functions below, returns whether it was not aborted.
fn scan_content(run: &Run<'_>, path: &Path) -> bool {
    let opened = Source::open(path).and_then(|source| source.root().stat().map(|stat| (source, stat)));
    opened.is_ok_and(|(source, stat)| scan_directory(run, &source, path, stat.containing_device()))
}

/// Scans one entry of a directory, without following links.
fn scan_entry(run: &Run<'_>, directory: &Path, name: &OsStr) -> bool {
    let Ok(source) = Source::open(directory) else { return true };
    let (entry, parent) = (source.root().stat_entry(name.as_bytes()), source.root().stat());
    let (Ok(entry), Ok(parent)) = (entry, parent) else { return true };
    if run.options.is_excluded(&directory.join(name)) || is_other_file_system(run, &entry, parent.containing_device()) {
        return true;
    }
    scan_file_or_directory(run, &source, &directory.join(name), &entry)
}

fn scan_path(run: &Run<'_>, path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return true };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return scan_content(run, &path) };
    let opened =
        Source::open(parent).and_then(|source| source.root().stat_entry(name.as_bytes()).map(|at| (source, at)));
    opened.map_or(true, |(source, stat)| scan_file_or_directory(run, &source, &path, &stat))
}

fn scan_file_or_directory(run: &Run<'_>, source: &Source, path: &Path, stat: &Stat) -> bool {
    if stat.is_file() {
        run.meters.scanned(Amount { files: 1, bytes: stat.size() });
    }
    !stat.is_dir() || scan_directory(run, source, path, stat.containing_device())
}

/// Scans a directory iteratively, because a recursion might overflow the stack.
fn scan_directory(run: &Run<'_>, source: &Source, path: &Path, device: u64) -> bool {
    let mut path = path.to_owned();
    let Some(folders) = count_entries(run, source, &path, device) else { return false };
    let mut open = vec![folders];
    while let Some(folders) = open.last_mut() {
        let Some(name) = folders.pop() else {
            open.pop();
            path.pop();
            continue;
        };
        path.push(name);
        let Some(folders) = count_entries(run, source, &path, device) else { return false };
        open.push(folders);
    }
    true
}

/// Counts the files of a directory and returns its subdirectories; `None` if the scan was aborted.
fn count_entries(run: &Run<'_>, source: &Source, path: &Path, device: u64) -> Option<Vec<OsString>> {
    if is_obsolete(run) {
        return None;
    }
    let mut folders = Vec::new();
    let Ok(folder) = source.folder(path) else { return Some(folders) };
    let (mut amount, mut is_aborted) = (Amount::default(), false);
    // An error ends the directory.
    let _ = folder.each_entry(|name, kind| {
        is_aborted = is_obsolete(run);
        match classify(run, path, &folder, name, kind, device) {
            ScannedEntry::File(bytes) => amount.add(Amount { files: 1, bytes }),
            ScannedEntry::Directory => folders.push(OsStr::from_bytes(name).to_owned()),
            ScannedEntry::Ignored => {}
        }
        if amount.files >= UPDATE_INTERVAL {
            run.meters.scanned(std::mem::take(&mut amount));
        }
        !is_aborted
    });
    run.meters.scanned(amount);
    (!is_aborted).then_some(folders)
}

/// The kind of an entry for the scan.
enum ScannedEntry {
    File(u64),
    Directory,
    Ignored,
}

fn classify(run: &Run<'_>, path: &Path, folder: &Folder, name: &[u8], kind: FileType, device: u64) -> ScannedEntry {
    let may_count = matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Unknown);
    if !may_count || run.options.is_excluded(&path.join(OsStr::from_bytes(name))) {
        return ScannedEntry::Ignored;
    }
    if kind == FileType::Directory && !run.options.one_file_system {
        return ScannedEntry::Directory;
    }
    match folder.stat_entry(name) {
        Ok(stat) if stat.is_file() => ScannedEntry::File(stat.size()),
        Ok(stat) if stat.is_dir() && !is_other_file_system(run, &stat, device) => ScannedEntry::Directory,
        _ => ScannedEntry::Ignored,
    }
}

/// Whether the total is no longer needed.
fn is_obsolete(run: &Run<'_>) -> bool {
    run.stop.is_stopped() || run.is_walked()
}

/// Whether the backup skips the content of this directory because it is another file system.
fn is_other_file_system(run: &Run<'_>, stat: &Stat, device: u64) -> bool {
    run.options.one_file_system && stat.is_dir() && stat.containing_device() != device
}
