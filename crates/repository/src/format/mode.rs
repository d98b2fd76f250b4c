//! File modes: the system's bits and the ones stored in trees.

const PERMISSIONS: u32 = 0o777;
/// Stored bit, bits of `st_mode` that mean the same.
const KINDS: [(u32, u32); 6] = [
    (1 << 31, 0o040_000),           // directory
    (1 << 27, 0o120_000),           // symlink
    (1 << 26, 0o060_000),           // block device
    (1 << 26 | 1 << 21, 0o020_000), // character device
    (1 << 25, 0o010_000),           // fifo
    (1 << 24, 0o140_000),           // socket
];
const SPECIALS: [(u32, u32); 3] = [(1 << 23, 0o4000), (1 << 22, 0o2000), (1 << 20, 0o1000)];

/// From `st_mode`.
pub fn stored(st_mode: u32) -> u32 {
    let kind = KINDS.iter().find(|(_, bits)| st_mode & 0o170_000 == *bits).map_or(0, |(stored, _)| *stored);
    let specials = SPECIALS.iter().filter(|(_, bits)| st_mode & bits != 0).map(|(stored, _)| stored);
    specials.fold(kind | st_mode & PERMISSIONS, |mode, bit| mode | bit)
}

/// Permissions with setuid, setgid and sticky, as `chmod` takes them.
pub fn permissions(stored: u32) -> u32 {
    let specials = SPECIALS.iter().filter(|(bit, _)| stored & bit != 0).map(|(_, bits)| bits);
    specials.fold(stored & PERMISSIONS, |mode, bits| mode | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_stored_as_known() {
        for (st_mode, expected) in [
            (0o100_644, 420),
            (0o041_777, 2_148_532_735),
            (0o104_755, 8_389_101),
            (0o120_777, 134_218_239),
            (0o020_666, 69_206_454),
            (0o010_600, 33_554_816),
        ] {
            assert_eq!(stored(st_mode), expected, "{st_mode:o}");
            assert_eq!(permissions(expected), st_mode & 0o7777);
        }
    }
}
