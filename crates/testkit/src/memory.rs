//! Fills the page cache, so that all benchmark steps start with the same memory.
//!
//! A virtual machine returns unused memory to its host, and getting it back costs several times as much as writing to
//! it: the first step after something large was deleted would be slower than the others. So before every step the memory
//! is filled with the pages of a sparse file, as on a busy node, and then with the files that the step reads.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Syncs the file systems, fills the page cache, and reads `paths`.
pub fn fill_page_cache(work: &Path, paths: &[PathBuf]) -> io::Result<()> {
    let hole = work.join("hole");
    File::create(&hole)?.set_len(total()?)?;
    let file = File::open(&hole)?;
    rustix::fs::sync();
    read(file, &mut vec![0; 1 << 20])?;
    paths.iter().try_for_each(|path| read_all(path, &mut vec![0; 1 << 20]))
}

/// All memory but a tenth.
fn total() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let number = kilobytes.and_then(|number| number.parse::<u64>().ok());
    number.map(|number| number * 1024 / 10 * 9).ok_or_else(|| io::Error::other("no MemTotal in /proc/meminfo"))
}

fn read_all(path: &Path, buffer: &mut [u8]) -> io::Result<()> {
    if !path.is_dir() {
        return read(File::open(path)?, buffer);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() || entry.file_type()?.is_file() {
            read_all(&entry.path(), buffer)?;
        }
    }
    Ok(())
}

fn read(mut file: File, buffer: &mut [u8]) -> io::Result<()> {
    while file.read(buffer)? > 0 {}
    Ok(())
}
