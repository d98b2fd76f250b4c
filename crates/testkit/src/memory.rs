//! The same memory for everybody.
//!
//! A virtual machine gives memory that nobody uses back to its host, and fetching it again costs several times what
//! writing to it costs: whoever runs first after something large was deleted would pay for all others. So before every
//! step the memory is filled with the pages of a file that is one hole, as the memory of a busy node is always filled
//! with pages of files, and then with what the step reads.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Writes out what earlier steps left, fills the memory, and reads `wanted`.
pub fn even_out(work: &Path, wanted: &[PathBuf]) -> io::Result<()> {
    let hole = work.join("hole");
    File::create(&hole)?.set_len(total()?)?;
    let file = File::open(&hole)?;
    rustix::fs::sync();
    read(file, &mut vec![0; 1 << 20])?;
    wanted.iter().try_for_each(|path| read_all(path, &mut vec![0; 1 << 20]))
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
