//! A system that does not tell what a process writes, and a restic that does not either: sizes of files are all there is.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use plimsoll_mover::Outcome;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, require};

use crate::bed::{Bed, Where, Which};
use crate::volume::noise;

const MIB: u64 = 1 << 20;

/// Takes `/proc` away from the mover and from what it starts.
fn without_proc(bed: &mut Bed) {
    let program = std::mem::replace(&mut bed.launch.program, "unshare".into());
    let hide = "mount -t tmpfs none /proc && exec \"$1\"";
    bed.launch.arguments = ["--mount", "sh", "-c", hide, "sh"].map(Into::into).into();
    bed.launch.arguments.push(program.into());
}

/// The packs that hold content of files: those with directories are small.
fn large_packs(directory: &Path) -> Vec<String> {
    let entries: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let large = |path: &&PathBuf| path.is_file() && path.metadata().unwrap().len() > MIB;
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let here: Vec<String> = entries.iter().filter(large).map(name).collect();
    entries.iter().filter(|path| path.is_dir()).flat_map(|path| large_packs(path)).chain(here).collect()
}

/// Bytes of files of the snapshot in the volume, each counted once.
fn there(target: &Path) -> u64 {
    let names = ["first", "second", "third", "third-again"].map(|name| target.join(name));
    let found = names.iter().filter_map(|path| path.metadata().ok());
    let mut all: Vec<(u64, u64)> = found.map(|file| (file.ino(), file.len())).collect();
    all.sort_unstable();
    all.dedup();
    all.iter().map(|(_, length)| length).sum()
}

#[test]
fn an_old_restic_on_a_system_that_tells_nothing_shows_how_much_the_volume_has_grown() {
    let mut bed = require!(Bed::new(Which::OldRestic, Where::S3));
    for (seed, name) in [(1, "first"), (2, "second"), (3, "third")] {
        std::fs::write(bed.source().join(name), noise(seed, 24 << 20)).unwrap();
    }
    std::fs::hard_link(bed.source().join("third"), bed.source().join("third-again")).unwrap();
    let snapshot = bed.back_up().snapshot.unwrap();
    let endpoint = bed.server.as_ref().unwrap().endpoint().to_owned();
    let proxy = bed.runtime.block_on(Proxy::before("127.0.0.1:0", &endpoint)).unwrap();
    bed.place.config.insert("s3Url".into(), proxy.url());
    without_proc(&mut bed);
    // More than is restored, under two names: if it counted, all would seem to be done.
    std::fs::File::create(bed.target().join("old")).unwrap().set_len(200 * MIB).unwrap();
    std::fs::hard_link(bed.target().join("old"), bed.target().join("old-again")).unwrap();

    let packs = large_packs(&bed.stored);
    assert!(packs.len() > 3, "{packs:?}");
    // Each pack takes its time before it comes, and then comes slowly.
    let reads = |pack: &String| Requests::with_method(Method::GET).containing(pack);
    let _late: Vec<_> =
        packs.iter().map(|pack| proxy.inject(reads(pack), Fault::Latency(Duration::from_secs(3)))).collect();
    proxy.slow_down(Some(24 * MIB));
    let (mut before, mut shown) = (Vec::new(), Vec::new());
    let (target, job) = (bed.target(), bed.job(bed.restore_work(&snapshot)));
    let outcome = bed.watch(&job, |sample| {
        // What is there now is no less than when this was counted.
        if let Some(progress) = sample.shown.filter(|shown| shown.bytes_done < shown.total_bytes) {
            let seen = (progress.bytes_done, there(&target));
            if seen.1 == 0 { before.push(seen.0) } else { shown.push(seen) }
        }
    });
    let Ok(Outcome::Restore(done)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(done.bytes, 72 * MIB);
    // Samples are ten milliseconds apart, looks at the volume fifty: three seconds have many of both.
    assert!(before.len() > 50 && before.iter().all(|bytes| *bytes == 0), "counted before it was there: {before:?}");
    assert!(shown.iter().all(|(bytes, there)| bytes <= there), "more than there is: {shown:?}");
    assert!(shown.iter().any(|(bytes, _)| (1..72 * MIB - 1).contains(bytes)), "nothing in between: {shown:?}");
}
