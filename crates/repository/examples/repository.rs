//! A command line for the engine: `repository <command> <repository directory> <password> …`, for benchmarks and debugging.
#![expect(clippy::print_stdout, reason = "a command-line tool")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_progress::{Clock, Operation};
use plimsoll_repository::backup::{BackupOptions, DeviceIds, Target};
use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, OpenOptions, ReadData, Repository};
use plimsoll_store::{Location, Store};

fn store(location: &str) -> Result<Store, plimsoll_store::StoreError> {
    let Some(rest) = location.strip_prefix("s3:") else { return Store::directory(location, "") };
    // s3:http://host:port/bucket with the keys in the environment.
    let (endpoint, bucket) = rest.rsplit_once('/').unwrap_or((rest, ""));
    let mut store_location = Location { provider: "aws".into(), bucket: bucket.into(), ..Location::default() };
    store_location.config.insert("s3Url".into(), endpoint.into());
    store_location.config.insert("s3ForcePathStyle".into(), "true".into());
    store_location.config.insert("region".into(), "us-east-1".into());
    Store::open(&store_location)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [command, location, password, rest @ ..] = arguments.as_slice() else {
        return Err("usage: repository init|backup|restore|check|snapshots <repository> <password> …".into());
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let (store, handle) = (store(location)?, runtime.handle().clone());
    if command == "init" {
        Repository::init(store, handle, password.as_bytes())?;
        return Ok(());
    }
    let started = Instant::now();
    let cache = std::env::var_os("PLIMSOLL_CACHE_DIR").map(Into::into);
    let options = OpenOptions { cache, ..OpenOptions::default() };
    let repository = Arc::new(Repository::open(store, handle, password.as_bytes(), options)?);
    println!("opened after {:?}", started.elapsed());
    let operation = Operation::new(command, Clock::system());
    let (task, cancel) = (operation.root(), Cancel::default());
    match (command.as_str(), rest) {
        ("backup", [path, more @ ..]) => {
            let mut options = BackupOptions::new(Target::Paths(vec![path.into()]));
            options.verify = !more.iter().any(|flag| flag == "no-verify");
            if more.iter().any(|flag| flag == "all-devices") {
                options.device_ids = DeviceIds::All;
            }
            let outcome = repository.backup(&options, &task, &cancel)?;
            println!("snapshot {}\n{:#?}", outcome.snapshot, outcome.summary);
            outcome.problems.iter().for_each(|problem| println!("{problem:?}"));
        }
        ("restore", [snapshot, target]) => {
            let (id, _) = repository.find_snapshot(snapshot)?;
            let outcome = repository.restore(&RestoreOptions::new(id, target), &task, &cancel)?;
            println!("{} files, {} bytes", outcome.files, outcome.bytes);
            outcome.problems.iter().for_each(|problem| println!("{problem:?}"));
        }
        ("check", []) => println!("{:#?}", repository.check(ReadData::Everything, &task, &cancel)?),
        ("snapshots", []) => {
            for (id, snapshot) in repository.snapshots()? {
                println!("{id} {} {:?}", snapshot.time, snapshot.paths);
            }
        }
        ("ls", [snapshot]) => {
            let (_, snapshot) = repository.find_snapshot(snapshot)?;
            let browser = repository.browse(&task, &cancel)?;
            browser.list(&snapshot, Path::new(""), &mut |path, node| {
                println!("{} {}", node.kind.word(), path.display());
            })?;
        }
        _ => return Err("invalid arguments".into()),
    }
    println!("done after {:?}", started.elapsed());
    Ok(())
}
