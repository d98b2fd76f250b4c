//! Counting beside the backup, so that there is a total to compare with. Its errors stop nothing.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::run::Run;

/// Adds up what there is; the totals grow with every directory and are final at the end. Cut short it knows no total.
pub(super) fn scan(run: &Run<'_>) {
    if run.options.target.paths().iter().all(|path| scan_target(run, path)) {
        run.meters.bytes.finalize_total();
        run.meters.files.finalize_total();
    }
}

fn scan_target(run: &Run<'_>, path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => return scan_directory(run, path, metadata.dev()),
        Ok(metadata) if metadata.is_file() => grow(run, 1, metadata.len()),
        _ => {}
    }
    true
}

/// Says whether it got to the end.
fn scan_directory(run: &Run<'_>, path: &Path, device: u64) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else { return true };
    let (mut files, mut bytes, mut folders) = (0, 0, Vec::new());
    for entry in entries.flatten() {
        if is_of_no_use(run) {
            return false;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if !(kind.is_dir() || kind.is_file()) || run.options.leaves_out(&entry.path()) {
            continue;
        }
        if kind.is_dir() {
            if !is_foreign(run, &entry, device) {
                folders.push(entry.file_name());
            }
        } else if let Ok(metadata) = entry.metadata() {
            files += 1;
            bytes += metadata.len();
        }
    }
    grow(run, files, bytes);
    folders.iter().all(|folder| scan_directory(run, &path.join(folder), device))
}

/// Whether nobody waits for the total any more.
fn is_of_no_use(run: &Run<'_>) -> bool {
    run.is_stopped() || run.is_over()
}

/// Whether the backup leaves out what is in this directory because it is another file system's.
fn is_foreign(run: &Run<'_>, entry: &DirEntry, device: u64) -> bool {
    run.options.one_file_system && entry.metadata().is_ok_and(|metadata| metadata.dev() != device)
}

fn grow(run: &Run<'_>, files: u64, bytes: u64) {
    run.meters.files.grow_total(files);
    run.meters.bytes.grow_total(bytes);
}
