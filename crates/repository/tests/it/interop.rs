//! Interoperability with restic.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_repository::backup::{BackupOptions, DeviceIds, Parent};
use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, OpenOptions, Repository, password_in_file};

use crate::round_trip;
use crate::testbed::{PASSWORD, Testbed, check, fingerprint, random_bytes, task};

/// Where `hack/install` puts a program.
pub fn installed(name: &str) -> Option<PathBuf> {
    let own = std::env::var_os("PLIMSOLL_CACHE").filter(|cache| !cache.is_empty()).map(PathBuf::from);
    let cache = own.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/plimsoll")))?;
    Some(cache.join("bin").join(name)).filter(|program| program.is_file())
}

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("version").output().expect("runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The oldest restic that supports version 2 and the current one, if they are installed. With `CI=true` both must be.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn programs() -> Vec<PathBuf> {
    let is_old = |program: &Path| version(program).starts_with("restic 0.14");
    let (old, current) = (installed("restic-0.14"), installed("restic"));
    assert!(old.as_deref().is_none_or(is_old), "it is what its name says");
    assert!(!current.as_deref().is_some_and(is_old), "fixture that differ");
    let systems = PathBuf::from("/usr/bin/restic");
    let old = old.or_else(|| Some(systems).filter(|program| program.is_file() && is_old(program)));
    let found: Vec<_> = [old, current].into_iter().flatten().collect();
    if found.len() < 2 {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "fixture versions of restic must be installed");
        eprintln!("SKIPPED in part: restic is only installed as {found:?}");
    }
    found
}

pub struct Restic<'a> {
    program: &'a Path,
    testbed: &'a Testbed,
}

impl Restic<'_> {
    fn output(&self, arguments: &[&str]) -> std::process::Output {
        Command::new(self.program)
            .arg("--repo")
            .arg(self.testbed.path("repository"))
            .arg("--cache-dir")
            .arg(self.testbed.path("cache"))
            .args(arguments)
            .current_dir(self.testbed.source())
            .env("RESTIC_PASSWORD", PASSWORD)
            .env("TZ", "UTC")
            .output()
            .expect("runs")
    }

    /// Runs restic, which must succeed, and returns its output.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} {arguments:?}: {error}", self.program.display());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run_with_password_file(&self, file: &Path, arguments: &[&str]) {
        let output = Command::new(self.program)
            .args(["--no-cache", "--repo"])
            .arg(self.testbed.path("repository"))
            .arg("--password-file")
            .arg(file)
            .args(arguments)
            .env_remove("RESTIC_PASSWORD")
            .output()
            .expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs restic, which must fail, and returns its error output.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{} {arguments:?}", self.program.display());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn backup(&self) -> serde_json::Value {
        let output = self.run(&["backup", "--json", "--force", "."]);
        let mut summary = output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        summary.rfind(|line| line["message_type"] == "summary").expect("a summary")
    }

    fn restore(&self, target: &Path) {
        self.run(&["restore", "latest", "--target", target.to_str().expect("text")]);
    }

    /// restic 0.14 does not support link targets that are not UTF-8.
    fn supports_raw_links(&self) -> bool {
        !self.run(&["version"]).contains("restic 0.14")
    }
}

/// Options with restic's defaults. Both back up `.`, because parent directories may change meanwhile.
fn restic_options(testbed: &Testbed) -> BackupOptions {
    BackupOptions { device_ids: DeviceIds::All, ..testbed.options() }
}

/// Runs a test with every installed restic, each in a testbed of its own.
pub fn each_restic(test: impl Fn(&Testbed, &Restic<'_>)) {
    for program in &programs() {
        let testbed = Testbed::new();
        test(&testbed, &Restic { program, testbed: &testbed });
    }
}

/// Runs a test with every installed restic and a filled source.
fn each(test: impl Fn(&Testbed, &Restic<'_>)) {
    each_restic(|testbed, restic| {
        round_trip::fill(testbed);
        if !restic.supports_raw_links() {
            std::fs::remove_file(testbed.source().join("odd link")).expect("removes");
        }
        test(testbed, restic);
    });
}

#[test]
fn names_with_all_characters_make_the_same_trees_as_restic() {
    let shown = |character: &char| {
        let text = format!("a{character}");
        text.escape_debug().eq(text.chars())
    };
    let all: Vec<_> = ('\u{80}'..=char::MAX).filter(shown).collect();
    each_restic(|testbed, restic| {
        // 0.14 is built with an older Go, which knows fewer characters.
        if restic.run(&["version"]).contains("restic 0.14") {
            return;
        }
        for (number, some) in all.chunks(50).enumerate() {
            testbed.write(&format!("{number:05} {}", some.iter().collect::<String>()), "");
        }
        let repository = testbed.init();
        repository.backup(&restic_options(testbed), &task("backup"), &Cancel::default()).expect("backs up");
        let summary = restic.backup();
        assert_eq!((&summary["data_blobs"], &summary["tree_blobs"]), (&0.into(), &0.into()));
    });
}

#[test]
fn restic_checks_restores_continues_and_prunes_our_repository() {
    each(|testbed, restic| {
        let repository = testbed.init();
        let options = restic_options(testbed);
        repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
        restic.run(&["check", "--read-data"]);
        let target = testbed.path("restored");
        restic.restore(&target);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
        let summary = restic.backup();
        assert_eq!((&summary["data_blobs"], &summary["tree_blobs"]), (&0.into(), &0.into()), "the same bytes");
        testbed.write("one more", "file");
        repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
        restic.run(&["forget", "--keep-last", "1", "--prune"]);
        restic.run(&["check", "--read-data"]);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        assert_eq!(repository.snapshots().expect("lists").len(), 1);
    });
}

#[test]
fn the_engine_checks_restores_and_continues_restics_repository() {
    each(|testbed, restic| {
        restic.run(&["init"]);
        restic.backup();
        let repository = testbed.open();
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        let target = testbed.path("restored");
        let restored =
            repository.restore(&RestoreOptions::new(snapshot, &target), &task("restore"), &Cancel::default());
        assert_eq!(restored.expect("restores").problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
        for parent in [Parent::None, Parent::Newest] {
            let options = BackupOptions { parent, ..restic_options(testbed) };
            let summary = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up").summary;
            assert_eq!((summary.data_blobs, summary.tree_blobs), (0, 0), "the same bytes");
        }
        restic.run(&["check", "--read-data"]);
        testbed.write("one more", "file");
        repository.backup(&restic_options(testbed), &task("backup"), &Cancel::default()).expect("backs up");
        restic.run(&["forget", "--keep-last", "1", "--group-by", "", "--prune"]);
        restic.run(&["check", "--read-data"]);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let kept = repository.snapshots().expect("lists");
        assert_eq!(kept.len(), 1);
        std::fs::remove_dir_all(&target).expect("removes");
        assert_eq!(testbed.restore(&repository, kept[0].0).problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()), "what restic left of both");
    });
}

/// Without the device IDs that restic would store.
#[test]
fn restic_restores_snapshots_with_default_options() {
    each(|testbed, restic| {
        testbed.backup(&testbed.init());
        restic.run(&["check", "--read-data"]);
        let target = testbed.path("restored");
        restic.restore(&target);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
    });
}

#[test]
fn restics_repositories_of_both_versions_can_be_browsed() {
    for version in ["1", "2"] {
        each(|testbed, restic| {
            restic.run(&["init", "--repository-version", version]);
            restic.backup();
            let repository = testbed.open();
            let (_, snapshot) = repository.find_snapshot("latest").expect("is there");
            let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");
            let found = browser.find(&snapshot, "wor*").expect("finds");
            assert_eq!(found.iter().map(|(path, _)| path.as_path()).collect::<Vec<_>>(), [Path::new("/text/words")]);
            for name in ["text/words", "large", "empty"] {
                let mut content = Vec::new();
                browser.dump(&snapshot, Path::new(name), &mut content).expect("reads");
                assert!(content == std::fs::read(testbed.source().join(name)).expect("reads"), "{name}");
            }
            let stats = browser.stats(&[snapshot]).expect("adds up");
            let theirs = restic.run(&["stats", "--json", "--mode", "restore-size", "latest"]);
            let theirs: serde_json::Value = serde_json::from_str(theirs.trim()).expect("JSON");
            assert_eq!(theirs["total_size"], stats.restore_size);
        });
    }
}

/// Chunk boundaries near the end of a file are missed most easily.
#[test]
fn files_of_any_length_have_the_chunks_of_restic() {
    each(|testbed, restic| {
        restic.run(&["init"]);
        for number in 0..24 {
            let length = 524_288 + usize::try_from(number).expect("small") * 90_001;
            testbed.write(&format!("lengths/{number}"), random_bytes(number, length));
        }
        restic.backup();
        let options = BackupOptions { parent: Parent::None, ..restic_options(testbed) };
        let summary = testbed.open().backup(&options, &task("backup"), &Cancel::default()).expect("backs up").summary;
        assert_eq!((summary.data_blobs, summary.tree_blobs), (0, 0), "the same cuts");
    });
}

#[test]
fn version_1_is_read_only() {
    each(|testbed, restic| {
        restic.run(&["init", "--repository-version", "1"]);
        restic.backup();
        let repository = testbed.open();
        assert_eq!(repository.version(), 1);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        testbed.restore(&repository, snapshot);
        assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
        let error = repository.backup(&testbed.options(), &task("backup"), &Cancel::default()).expect_err("refused");
        assert_eq!(error.reason(), "UnsupportedRepository");
    });
}

#[test]
fn a_password_with_a_newline_in_its_file_is_the_same_for_both() {
    each_restic(|testbed, restic| {
        let file = testbed.path("password file");
        std::fs::write(&file, " fixture words\n").expect("writes");
        let content = std::fs::read(&file).expect("reads");
        let password = password_in_file(&content);
        assert_eq!(password, b"fixture words");
        restic.run_with_password_file(&file, &["init"]);
        let handle = testbed.runtime.handle().clone();
        let open =
            |password: &[u8]| Repository::open(testbed.store(), handle.clone(), password, OpenOptions::default());
        open(password).expect("opens what restic made");
        assert_eq!(open(&content).expect_err("not that").reason(), "WrongRepositoryPassword");
        std::fs::remove_dir_all(testbed.path("repository")).expect("removes");
        Repository::init(testbed.store(), handle.clone(), password).expect("initializes");
        restic.run_with_password_file(&file, &["cat", "config"]);
    });
}

#[test]
fn every_password_of_a_repository_opens_it_and_no_other() {
    each(|testbed, restic| {
        restic.run(&["init"]);
        let other = testbed.path("other password");
        std::fs::write(&other, "second").expect("writes");
        restic.run(&["key", "add", "--new-password-file", other.to_str().expect("text")]);
        let open = |password: &str| {
            let handle = testbed.runtime.handle().clone();
            Repository::open(testbed.store(), handle, password.as_bytes(), OpenOptions::default())
        };
        open(PASSWORD).expect("opens");
        open("second").expect("opens");
        assert_eq!(open("third").expect_err("stays closed").reason(), "WrongRepositoryPassword");
    });
}
