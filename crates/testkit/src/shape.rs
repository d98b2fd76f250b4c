//! Files of a given shape, the same ones for the same seed.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

const WORDS: [&str; 16] = [
    "ship", "line", "load", "hull", "water", "mark", "cargo", "port", "draft", "summer", "winter", "fresh", "salt",
    "deck", "keel", "tide",
];
const FILES_IN_A_DIRECTORY: u32 = 100;

/// How large each file is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// All the same.
    Exactly(u64),
    /// Exponentially distributed around this mean, as small files in real trees are.
    Around(u64),
}

/// The content of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Text that compresses to about a third.
    Text,
    /// Bytes that do not compress.
    Random,
}

/// A number of files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// How many.
    pub files: u32,
    /// How large.
    pub size: Size,
    /// Their content.
    pub content: Content,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The number and size of the written files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteSummary {
    /// Number of files.
    pub files: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

impl Shape {
    /// Text files of about 18 KB.
    pub fn small_files(files: u32) -> Self {
        Self { files, size: Size::Around(18_000), content: Content::Text, seed: 1 }
    }

    /// Files that do not compress.
    pub fn random(files: u32, bytes: u64) -> Self {
        Self { files, size: Size::Exactly(bytes), content: Content::Random, seed: 2 }
    }

    /// The standard data of the benchmarks: 20,000 small files and 11 of 160 MiB.
    pub fn standard() -> [Self; 2] {
        [Self::small_files(20_000), Self::random(11, 160 << 20)]
    }

    /// The same with other random numbers.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Writes the files, a hundred to a directory.
    pub fn write_into(&self, folder: &Path) -> Result<WriteSummary> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut written = WriteSummary::default();
        for number in 0..self.files {
            let directory = folder.join(format!("{}-{:03}", self.seed, number / FILES_IN_A_DIRECTORY));
            fs::create_dir_all(&directory)?;
            let content = self.file(&mut random);
            written.files += 1;
            written.bytes += content.len() as u64;
            fs::write(directory.join(format!("file-{number:05}")), content)?;
        }
        Ok(written)
    }

    fn file(&self, random: &mut StdRng) -> Vec<u8> {
        let size = self.size.draw(random);
        match self.content {
            Content::Text => text(size, random),
            Content::Random => {
                let mut bytes = vec![0; size];
                random.fill_bytes(&mut bytes);
                bytes
            }
        }
    }
}

impl Size {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sizes of test files are far below the limits of all three types"
    )]
    fn draw(self, random: &mut StdRng) -> usize {
        match self {
            Self::Exactly(bytes) => bytes as usize,
            Self::Around(mean) => (-(mean as f64) * (1.0 - random.random::<f64>()).ln()) as usize,
        }
    }
}

fn text(size: usize, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 16);
    while bytes.len() < size {
        bytes.extend_from_slice(WORDS[random.random_range(0..WORDS.len())].as_bytes());
        bytes.push(if random.random_ratio(1, 12) { b'\n' } else { b' ' });
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for directory in fs::read_dir(folder).unwrap() {
            for file in fs::read_dir(directory.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
        files
    }

    fn written(shape: Shape) -> (WriteSummary, BTreeMap<PathBuf, Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let written = shape.write_into(folder.path()).unwrap();
        (written, tree(folder.path()))
    }

    #[test]
    fn the_same_seed_gives_the_same_files_and_another_seed_gives_others() {
        let shape = Shape::small_files(150);
        assert_eq!(written(shape), written(shape));
        assert_ne!(written(shape).1.values().next(), written(shape.seeded(9)).1.values().next());
    }

    #[test]
    fn the_summary_matches_the_written_files() {
        let (counts, files) = written(Shape::small_files(250));
        assert_eq!(counts.files, 250);
        assert_eq!(files.len(), 250);
        assert_eq!(counts.bytes, files.values().map(|content| content.len() as u64).sum::<u64>());
        let mean = counts.bytes / counts.files;
        assert!((12_000..25_000).contains(&mean), "mean size was {mean}");
    }

    #[test]
    fn files_of_an_exact_size_have_it() {
        let (_, files) = written(Shape::random(3, 4096));
        assert!(files.values().all(|content| content.len() == 4096));
    }
}
