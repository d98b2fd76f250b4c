//! The standard data, its changes, and the tree of many files.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::Failure;

/// The divisor of the amount of data: 1 is the standard.
#[derive(Clone, Copy)]
pub struct Scale(pub usize);

/// 20,000 small text files and eleven large ones that do not compress.
pub fn make(root: &Path, scale: Scale) -> Result<(), Failure> {
    let mut random = Random(7);
    let text = text(&mut random);
    for folder in 0..200 / scale.0 {
        let folder = root.join(format!("small/{folder:03}"));
        fs::create_dir_all(&folder)?;
        for file in 0..100 {
            let size = random.exponential(18_000.0).min(text.len() / 2);
            let start = random.below(text.len() - size);
            fs::write(folder.join(format!("{file:03}.txt")), &text.as_bytes()[start..start + size])?;
        }
    }
    fs::create_dir_all(root.join("large"))?;
    for file in 0..(11 / scale.0).max(1) {
        large_file(&root.join(format!("large/{file}")), 160, &mut random)?;
    }
    Ok(())
}

/// Changes every tenth small file and every tenth part of the large ones.
pub fn change(root: &Path, round: u64) -> Result<(), Failure> {
    let mut random = Random(1000 + round);
    let text = text(&mut random);
    for folder in fs::read_dir(root.join("small"))? {
        for (number, file) in fs::read_dir(folder?.path())?.enumerate() {
            if number % 10 == 0 {
                let size = random.exponential(18_000.0).min(text.len() / 2);
                fs::write(file?.path(), &text.as_bytes()[..size])?;
            }
        }
    }
    for file in fs::read_dir(root.join("large"))? {
        let file = fs::File::options().write(true).open(file?.path())?;
        std::os::unix::fs::FileExt::write_all_at(&file, &random.block(16 << 20), 32 << 20)?;
    }
    Ok(())
}

/// A thousand directories of a thousand files, each of a few bytes.
pub fn make_many(root: &Path, scale: Scale) -> Result<u64, Failure> {
    let folders = 1000 / scale.0;
    for folder in 0..folders {
        let folder = root.join(format!("{:02}/{folder:03}", folder % 100));
        fs::create_dir_all(&folder)?;
        for file in 0..1000 {
            fs::write(folder.join(format!("{file:03}")), [b'x'; 5])?;
        }
    }
    Ok(folders as u64 * 1000)
}

fn text(random: &mut Random) -> String {
    let words: Vec<_> = (0..4000).map(|_| format!("{:x}", random.next() >> 24)).collect();
    (0..400_000).flat_map(|_| [words[random.below(words.len())].clone(), " ".into()]).collect()
}

fn large_file(path: &Path, mebibytes: usize, random: &mut Random) -> Result<(), Failure> {
    let mut out = fs::File::create(path)?;
    for _ in 0..mebibytes {
        out.write_all(&random.block(1 << 20))?;
    }
    Ok(())
}

/// Reproducible random bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap_or(0) % limit.max(1)
    }

    fn block(&mut self, size: usize) -> Vec<u8> {
        (0..size / 8).flat_map(|_| self.next().to_le_bytes()).collect()
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
    fn exponential(&mut self, mean: f64) -> usize {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (-mean * (1.0 - uniform).ln()) as usize
    }
}
