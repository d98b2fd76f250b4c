//! Counting ahead of the backup, so that there is a total to compare with. Its errors stop nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::FileType;

use super::options::Target;
use super::run::Run;
use super::source::{Folder, Source, Stat};
use super::totals::Amount;

/// Files after which the totals grow, also within a directory: it may have very many.
const STEP: u64 = 1000;

/// Adds up what there is, once that is of use; the totals grow on the way and are final at the end. Cut short it knows no total.
pub(super) fn scan(run: &Run<'_>) {
    let (begun, patience) = (Instant::now(), run.options.count_ahead_after);
    run.pool.wait_until_full(|| is_of_no_use(run) || begun.elapsed() >= patience);
    if is_of_no_use(run) {
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

/// The content of a directory, which may be a link. Like all of these it says whether it got to the end.
fn scan_content(run: &Run<'_>, path: &Path) -> bool {
    let opened = Source::open(path).and_then(|source| source.top().stat().map(|stat| (source, stat)));
    opened.is_ok_and(|(source, stat)| scan_directory(run, &source, path, stat.on_device()))
}

/// One entry of a directory, which is not followed; its file system is the directory's.
fn scan_entry(run: &Run<'_>, directory: &Path, name: &OsStr) -> bool {
    let Ok(source) = Source::open(directory) else { return true };
    let (entry, above) = (source.top().stat_entry(name.as_bytes()), source.top().stat());
    let (Ok(entry), Ok(above)) = (entry, above) else { return true };
    if run.options.leaves_out(&directory.join(name)) || is_foreign(run, &entry, above.on_device()) {
        return true;
    }
    scan_found(run, &source, &directory.join(name), &entry)
}

fn scan_path(run: &Run<'_>, path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return true };
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return scan_content(run, &path) };
    let opened = Source::open(above).and_then(|source| source.top().stat_entry(name.as_bytes()).map(|at| (source, at)));
    opened.map_or(true, |(source, stat)| scan_found(run, &source, &path, &stat))
}

fn scan_found(run: &Run<'_>, source: &Source, path: &Path, stat: &Stat) -> bool {
    if stat.is_file() {
        run.meters.scanned(Amount { files: 1, bytes: stat.size() });
    }
    !stat.is_dir() || scan_directory(run, source, path, stat.on_device())
}

/// However deep it is: whoever made it chose its depth, and the stack has an end.
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

/// Counts the files of a directory; answers with the directories in it, or with nothing if it was cut short.
fn count_entries(run: &Run<'_>, source: &Source, path: &Path, device: u64) -> Option<Vec<OsString>> {
    if is_of_no_use(run) {
        return None;
    }
    let mut folders = Vec::new();
    let Ok(folder) = source.folder(path) else { return Some(folders) };
    let (mut amount, mut is_cut_short) = (Amount::default(), false);
    // Who cannot read on has counted what there is to count.
    let _ = folder.each_entry(|name, kind| {
        is_cut_short = is_of_no_use(run);
        match what_is(run, path, &folder, name, kind, device) {
            Found::File(bytes) => amount.add(Amount { files: 1, bytes }),
            Found::Folder => folders.push(OsStr::from_bytes(name).to_owned()),
            Found::Nothing => {}
        }
        if amount.files >= STEP {
            run.meters.scanned(std::mem::take(&mut amount));
        }
        !is_cut_short
    });
    run.meters.scanned(amount);
    (!is_cut_short).then_some(folders)
}

/// What an entry is to the backup.
enum Found {
    File(u64),
    Folder,
    Nothing,
}

fn what_is(run: &Run<'_>, path: &Path, folder: &Folder, name: &[u8], kind: FileType, device: u64) -> Found {
    let may_count = matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Unknown);
    if !may_count || run.options.leaves_out(&path.join(OsStr::from_bytes(name))) {
        return Found::Nothing;
    }
    if kind == FileType::Directory && !run.options.one_file_system {
        return Found::Folder;
    }
    match folder.stat_entry(name) {
        Ok(stat) if stat.is_file() => Found::File(stat.size()),
        Ok(stat) if stat.is_dir() && !is_foreign(run, &stat, device) => Found::Folder,
        _ => Found::Nothing,
    }
}

/// Whether nobody waits for the total any more.
fn is_of_no_use(run: &Run<'_>) -> bool {
    run.is_stopped() || run.is_walked()
}

/// Whether the backup leaves out what is in this directory because it is another file system's.
fn is_foreign(run: &Run<'_>, stat: &Stat, device: u64) -> bool {
    run.options.one_file_system && stat.is_dir() && stat.on_device() != device
}
