//! Writes every CustomResourceDefinition into a directory: `cargo run -p plimsoll-api --example crds -- deploy/crds`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name the directory to write to")?;
    fs::create_dir_all(&directory)?;
    for crd in plimsoll_api::crds() {
        fs::write(directory.join(plimsoll_api::file_name(&crd)), plimsoll_api::manifest(&crd)?)?;
    }
    Ok(())
}
