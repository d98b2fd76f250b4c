//! The restic program reads what we write, and we what it writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_repository::backup::{BackupOptions, DeviceIds, Parent};
use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, OpenOptions, Repository, password_in_file};

use crate::faithful;
use crate::world::{PASSWORD, World, check, fingerprint, noise, task};

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

/// The oldest restic that knows version 2, and the current one, as far as they are installed. Where `CI` is `true` both
/// must be.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn programs() -> Vec<PathBuf> {
    let is_old = |program: &Path| version(program).starts_with("restic 0.14");
    let (old, current) = (installed("restic-0.14"), installed("restic"));
    assert!(old.as_deref().is_none_or(is_old), "it is what its name says");
    assert!(!current.as_deref().is_some_and(is_old), "two that differ");
    let systems = PathBuf::from("/usr/bin/restic");
    let old = old.or_else(|| Some(systems).filter(|program| program.is_file() && is_old(program)));
    let found: Vec<_> = [old, current].into_iter().flatten().collect();
    if found.len() < 2 {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "two versions of restic must be installed");
        eprintln!("SKIPPED in part: restic is only installed as {found:?}");
    }
    found
}

pub struct Restic<'a> {
    program: &'a Path,
    world: &'a World,
}

impl Restic<'_> {
    fn output(&self, arguments: &[&str]) -> std::process::Output {
        Command::new(self.program)
            .arg("--repo")
            .arg(self.world.path("repository"))
            .arg("--cache-dir")
            .arg(self.world.path("cache"))
            .args(arguments)
            .current_dir(self.world.source())
            .env("RESTIC_PASSWORD", PASSWORD)
            .env("TZ", "UTC")
            .output()
            .expect("runs")
    }

    /// What it prints; it must end well.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} {arguments:?}: {error}", self.program.display());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run_with_password_file(&self, file: &Path, arguments: &[&str]) {
        let output = Command::new(self.program)
            .args(["--no-cache", "--repo"])
            .arg(self.world.path("repository"))
            .arg("--password-file")
            .arg(file)
            .args(arguments)
            .env_remove("RESTIC_PASSWORD")
            .output()
            .expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// What it complains about; it must not end well.
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

    /// 0.14 does not know link targets that are not text.
    fn knows_raw_links(&self) -> bool {
        !self.run(&["version"]).contains("restic 0.14")
    }
}

/// With restic's defaults. Both back up `.`: the directories above belong to others and change meanwhile.
fn as_restic_does(world: &World) -> BackupOptions {
    BackupOptions { device_ids: DeviceIds::All, ..world.options() }
}

/// Runs a test with every restic there is, each in a world of its own.
pub fn each_restic(test: impl Fn(&World, &Restic<'_>)) {
    for program in &programs() {
        let world = World::new();
        test(&world, &Restic { program, world: &world });
    }
}

/// The same with something of every kind to back up.
fn each(test: impl Fn(&World, &Restic<'_>)) {
    each_restic(|world, restic| {
        faithful::fill(world);
        if !restic.knows_raw_links() {
            std::fs::remove_file(world.source().join("odd link")).expect("removes");
        }
        test(world, restic);
    });
}

#[test]
fn names_of_all_characters_make_the_same_trees_as_restics() {
    let shown = |character: &char| {
        let text = format!("a{character}");
        text.escape_debug().eq(text.chars())
    };
    let all: Vec<_> = ('\u{80}'..=char::MAX).filter(shown).collect();
    each_restic(|world, restic| {
        // 0.14 is built with an older Go, which knows fewer characters.
        if restic.run(&["version"]).contains("restic 0.14") {
            return;
        }
        for (number, some) in all.chunks(50).enumerate() {
            world.write(&format!("{number:05} {}", some.iter().collect::<String>()), "");
        }
        let repository = world.init();
        repository.backup(&as_restic_does(world), &task("backup"), &Cancel::default()).expect("backs up");
        let summary = restic.backup();
        assert_eq!((&summary["data_blobs"], &summary["tree_blobs"]), (&0.into(), &0.into()));
    });
}

#[test]
fn restic_checks_restores_continues_and_prunes_what_we_wrote() {
    each(|world, restic| {
        let repository = world.init();
        let options = as_restic_does(world);
        repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
        restic.run(&["check", "--read-data"]);
        let target = world.path("restored");
        restic.restore(&target);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()));
        let summary = restic.backup();
        assert_eq!((&summary["data_blobs"], &summary["tree_blobs"]), (&0.into(), &0.into()), "the same bytes");
        world.write("one more", "file");
        repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
        restic.run(&["forget", "--keep-last", "1", "--prune"]);
        restic.run(&["check", "--read-data"]);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        assert_eq!(repository.snapshots().expect("lists").len(), 1);
    });
}

#[test]
fn we_check_restore_and_continue_what_restic_wrote() {
    each(|world, restic| {
        restic.run(&["init"]);
        restic.backup();
        let repository = world.open();
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        let target = world.path("restored");
        let restored =
            repository.restore(&RestoreOptions::new(snapshot, &target), &task("restore"), &Cancel::default());
        assert_eq!(restored.expect("restores").problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()));
        for parent in [Parent::None, Parent::Newest] {
            let options = BackupOptions { parent, ..as_restic_does(world) };
            let summary = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up").summary;
            assert_eq!((summary.data_blobs, summary.tree_blobs), (0, 0), "the same bytes");
        }
        restic.run(&["check", "--read-data"]);
        world.write("one more", "file");
        repository.backup(&as_restic_does(world), &task("backup"), &Cancel::default()).expect("backs up");
        restic.run(&["forget", "--keep-last", "1", "--group-by", "", "--prune"]);
        restic.run(&["check", "--read-data"]);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let kept = repository.snapshots().expect("lists");
        assert_eq!(kept.len(), 1);
        std::fs::remove_dir_all(&target).expect("removes");
        assert_eq!(world.restore(&repository, kept[0].0).problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()), "what restic left of both");
    });
}

/// Without the device numbers that restic would store.
#[test]
fn restic_restores_what_we_write_by_default() {
    each(|world, restic| {
        world.backup(&world.init());
        restic.run(&["check", "--read-data"]);
        let target = world.path("restored");
        restic.restore(&target);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()));
    });
}

#[test]
fn what_restic_wrote_in_either_version_is_listed_searched_read_and_added_up() {
    for version in ["1", "2"] {
        each(|world, restic| {
            restic.run(&["init", "--repository-version", version]);
            restic.backup();
            let repository = world.open();
            let (_, snapshot) = repository.find_snapshot("latest").expect("is there");
            let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");
            let found = browser.find(&snapshot, "wor*").expect("finds");
            assert_eq!(found.iter().map(|(path, _)| path.as_path()).collect::<Vec<_>>(), [Path::new("/text/words")]);
            for name in ["text/words", "large", "empty"] {
                let mut content = Vec::new();
                browser.dump(&snapshot, Path::new(name), &mut content).expect("reads");
                assert!(content == std::fs::read(world.source().join(name)).expect("reads"), "{name}");
            }
            let stats = browser.stats(&[snapshot]).expect("adds up");
            let theirs = restic.run(&["stats", "--json", "--mode", "restore-size", "latest"]);
            let theirs: serde_json::Value = serde_json::from_str(theirs.trim()).expect("JSON");
            assert_eq!(theirs["total_size"], stats.restore_size);
        });
    }
}

/// The last bytes of a file are where a cut is missed most easily.
#[test]
fn files_of_any_length_are_cut_where_restic_cuts_them() {
    each(|world, restic| {
        restic.run(&["init"]);
        for number in 0..24 {
            let length = 524_288 + usize::try_from(number).expect("small") * 90_001;
            world.write(&format!("lengths/{number}"), noise(number, length));
        }
        restic.backup();
        let options = BackupOptions { parent: Parent::None, ..as_restic_does(world) };
        let summary = world.open().backup(&options, &task("backup"), &Cancel::default()).expect("backs up").summary;
        assert_eq!((summary.data_blobs, summary.tree_blobs), (0, 0), "the same cuts");
    });
}

#[test]
fn version_one_is_read_and_not_written() {
    each(|world, restic| {
        restic.run(&["init", "--repository-version", "1"]);
        restic.backup();
        let repository = world.open();
        assert_eq!(repository.version(), 1);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        world.restore(&repository, snapshot);
        assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()));
        let error = repository.backup(&world.options(), &task("backup"), &Cancel::default()).expect_err("refused");
        assert_eq!(error.reason(), "UnsupportedRepository");
    });
}

#[test]
fn a_password_with_a_newline_in_its_file_is_the_same_for_both() {
    each_restic(|world, restic| {
        let file = world.path("password file");
        std::fs::write(&file, " two words\n").expect("writes");
        let content = std::fs::read(&file).expect("reads");
        let password = password_in_file(&content);
        assert_eq!(password, b"two words");
        restic.run_with_password_file(&file, &["init"]);
        let handle = world.runtime.handle().clone();
        let open = |password: &[u8]| Repository::open(world.store(), handle.clone(), password, OpenOptions::default());
        open(password).expect("opens what restic made");
        assert_eq!(open(&content).expect_err("not that").reason(), "WrongRepositoryPassword");
        std::fs::remove_dir_all(world.path("repository")).expect("removes");
        Repository::init(world.store(), handle.clone(), password).expect("initializes");
        restic.run_with_password_file(&file, &["cat", "config"]);
    });
}

#[test]
fn every_password_of_a_repository_opens_it_and_no_other() {
    each(|world, restic| {
        restic.run(&["init"]);
        let other = world.path("other password");
        std::fs::write(&other, "second").expect("writes");
        restic.run(&["key", "add", "--new-password-file", other.to_str().expect("text")]);
        let open = |password: &str| {
            let handle = world.runtime.handle().clone();
            Repository::open(world.store(), handle, password.as_bytes(), OpenOptions::default())
        };
        open(PASSWORD).expect("opens");
        open("second").expect("opens");
        assert_eq!(open("third").expect_err("stays closed").reason(), "WrongRepositoryPassword");
    });
}
