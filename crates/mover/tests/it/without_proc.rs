//! A system without `/proc` and a restic without JSON progress: progress comes from file sizes only.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use plimsoll_mover::Outcome;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, require};

use crate::testbed::{StoreKind, TestMover, Testbed};
use crate::volume::random_bytes;

const MIB: u64 = 1 << 20;

/// Hides `/proc` from the mover and its child processes.
fn without_proc(bed: &mut Testbed) {
    let program = std::mem::replace(&mut bed.command.program, "unshare".into());
    let hide = "mount -t tmpfs none /proc && exec \"$1\"";
    bed.command.arguments = ["--mount", "sh", "-c", hide, "sh"].map(Into::into).into();
    bed.command.arguments.push(program.into());
}

/// The packs with file content: packs with trees are small.
fn large_packs(directory: &Path) -> Vec<String> {
    let entries: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let large = |path: &&PathBuf| path.is_file() && path.metadata().unwrap().len() > MIB;
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let here: Vec<String> = entries.iter().filter(large).map(name).collect();
    entries.iter().filter(|path| path.is_dir()).flat_map(|path| large_packs(path)).chain(here).collect()
}

/// The bytes of the snapshot's files in the volume, each counted once.
fn restored_bytes(target: &Path) -> u64 {
    let names = ["first", "second", "third", "third-again"].map(|name| target.join(name));
    let metadata = names.iter().filter_map(|path| path.metadata().ok());
    let mut all: Vec<(u64, u64)> = metadata.map(|file| (file.ino(), file.len())).collect();
    all.sort_unstable();
    all.dedup();
    all.iter().map(|(_, length)| length).sum()
}

#[test]
fn an_old_restic_without_proc_reports_the_growth_of_the_volume() {
    let mut bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::S3));
    for (seed, name) in [(1, "first"), (2, "second"), (3, "third")] {
        std::fs::write(bed.source().join(name), random_bytes(seed, 24 << 20)).unwrap();
    }
    std::fs::hard_link(bed.source().join("third"), bed.source().join("third-again")).unwrap();
    let snapshot = bed.back_up().snapshot.unwrap();
    let endpoint = bed.server.as_ref().unwrap().endpoint().to_owned();
    let proxy = bed.runtime.block_on(Proxy::for_server("127.0.0.1:0", &endpoint)).unwrap();
    bed.location.config.insert("s3Url".into(), proxy.url());
    without_proc(&mut bed);
    // More than is restored, as two hard links: if it counted, the restore would look complete.
    std::fs::File::create(bed.target().join("old")).unwrap().set_len(200 * MIB).unwrap();
    std::fs::hard_link(bed.target().join("old"), bed.target().join("old-again")).unwrap();

    let packs = large_packs(&bed.stored);
    assert!(packs.len() > 3, "{packs:?}");
    // Each pack is delayed and then sent slowly.
    let reads = |pack: &String| Requests::with_method(Method::GET).containing(pack);
    let _late: Vec<_> =
        packs.iter().map(|pack| proxy.inject(reads(pack), Fault::Latency(Duration::from_secs(3)))).collect();
    proxy.slow_down(Some(24 * MIB));
    let (mut before, mut shown) = (Vec::new(), Vec::new());
    let (target, job) = (bed.target(), bed.job(bed.restore_work(&snapshot)));
    let outcome = bed.watch(&job, |sample| {
        // The volume has at least the size of the last measurement.
        if let Some(progress) = sample.shown.filter(|shown| shown.bytes_done < shown.total_bytes) {
            let measured = (progress.bytes_done, restored_bytes(&target));
            if measured.1 == 0 { before.push(measured.0) } else { shown.push(measured) }
        }
    });
    let Ok(Outcome::Restore(done)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(done.bytes, 72 * MIB);
    // Samples are ten milliseconds apart, measurements of the volume fifty: three seconds have many of both.
    assert!(before.len() > 50 && before.iter().all(|bytes| *bytes == 0), "counted before it was restored: {before:?}");
    assert!(shown.iter().all(|(bytes, restored)| bytes <= restored), "more than was restored: {shown:?}");
    assert!(shown.iter().any(|(bytes, _)| (1..72 * MIB - 1).contains(bytes)), "no intermediate progress: {shown:?}");
}
