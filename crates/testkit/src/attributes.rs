//! Extended attributes of files.

use std::path::Path;

use rustix::fs::{lgetxattr, llistxattr};

const MAX_SIZE: usize = 4096;

/// Name and value of each extended attribute, as listed; of a symbolic link its own. None where they are not supported.
pub fn extended_attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; MAX_SIZE];
    let length = llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(path, name))).collect()
}

fn value(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut value = vec![0; MAX_SIZE];
    let length = lgetxattr(path, name, &mut value[..]).expect("a listed attribute has a value");
    value.truncate(length);
    value
}
