//! The progress lines that the program kopia writes to its standard error.
//!
//! Sizes are rounded to one decimal, so the lower limit of the bytes done is used. kopia's percentage may exceed 100. A line with
//! `*` is not the end: only the exit code is.

/// A size that was rounded to one decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Its lower limit.
    pub low: u64,
    /// The size of its last digit: so much may be done before the line changes.
    pub step: u64,
}

/// A progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressLine {
    /// Progress of a backup.
    Upload {
        /// Files hashed or found unchanged.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Of these the bytes that were hashed, which kopia has read.
        hashed: Size,
        /// Bytes sent to the repository.
        uploaded: u64,
        /// All bytes, once kopia has estimated them.
        estimate: Option<u64>,
        /// Seconds left, once kopia has estimated them; never 0.
        seconds_left: Option<u64>,
    },
    /// Progress of a restore.
    Restore {
        /// Entries restored.
        entries: u64,
        /// Their bytes.
        bytes: u64,
        /// The same as it was rounded.
        restored: Size,
        /// Entries found so far.
        found_entries: u64,
        /// Their bytes.
        found_bytes: u64,
        /// Seconds left, once kopia has estimated them; never 0.
        seconds_left: Option<u64>,
    },
}

impl ProgressLine {
    /// Parses a line; `None` if it is none of progress.
    pub fn parse(line: &str) -> Option<Self> {
        parse_restore(line).or_else(|| parse_upload(line))
    }
}

/// `| 1 hashing, 2 hashed (35.3 MB), 3 cached (1 B), uploaded 25 MB, estimated 2.1 GB (40.3%) 3s left`
fn parse_upload(line: &str) -> Option<ProgressLine> {
    let (hashed_files, hashed) = parse_count_before(line, " hashed (")?;
    let (cached_files, cached) = parse_count_before(line, " cached (")?;
    let uploaded = line.split_once(" uploaded ").and_then(|(_, rest)| min_size(rest.split([',', '(']).next()?));
    let estimated = line.split_once(", estimated ").map(|(_, rest)| rest);
    let estimate = estimated.and_then(|rest| size(rest.split(" (").next()?));
    let left = estimated.and_then(|rest| seconds(rest.split_once("%) ")?.1.split_once(" left")?.0));
    Some(ProgressLine::Upload {
        files: hashed_files + cached_files,
        bytes: hashed.low + cached.low,
        hashed,
        uploaded: uploaded.map_or(0, |size| size.low),
        estimate,
        seconds_left: left,
    })
}

/// `Processed 3 (6.1 KB) of 4 (8.2 KB), skipped 1 (2 KB), ignored 2 errors 2.1 MB/s (70.5%) remaining 3s.`
fn parse_restore(line: &str) -> Option<ProgressLine> {
    let rest = line.trim_start().strip_prefix("Processed ")?;
    let (done, found) = rest.split_once(" of ")?;
    let (entries, restored) = parse_count(done)?;
    let (number, rest) = found.split_once(" (")?;
    let (found_entries, found_bytes) = (number.parse().ok()?, size(rest.split(')').next()?)?);
    let left = line.split_once(" remaining ").and_then(|(_, rest)| seconds(rest.trim_end().trim_end_matches('.')));
    let bytes = restored.low;
    Some(ProgressLine::Restore { entries, bytes, restored, found_entries, found_bytes, seconds_left: left })
}

/// A line without its progress. kopia ends its progress line only on success: an error follows on the same line.
pub fn strip_progress(line: &str) -> &str {
    let after = |end: &str| line.split_once(end).map_or("", |(_, rest)| rest);
    let rest = match ProgressLine::parse(line) {
        None => return line,
        Some(ProgressLine::Upload { estimate: None, .. }) => after("estimating..."),
        Some(ProgressLine::Upload { .. }) => after(" left"),
        Some(ProgressLine::Restore { .. }) => after_full_stop(line),
    };
    rest.trim()
}

/// The text after the first full stop that is not a decimal point.
fn after_full_stop(line: &str) -> &str {
    let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let rests = line.match_indices('.').map(|(at, _)| &line[at + 1..]);
    rests.into_iter().find(|rest| !starts_with_digit(rest)).unwrap_or_default()
}

/// The number before `word` and the size in the parentheses after it.
fn parse_count_before(line: &str, word: &str) -> Option<(u64, Size)> {
    let (before, after) = line.split_once(word)?;
    Some((before.rsplit(' ').next()?.parse().ok()?, min_size(after.split(')').next()?)?))
}

fn parse_count(text: &str) -> Option<(u64, Size)> {
    let (number, rest) = text.split_once(" (")?;
    Some((number.parse().ok()?, min_size(rest.split(')').next()?)?))
}

/// `1h2m3s` in seconds. kopia shows 0s for less than a second, and when it does not know better.
fn seconds(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text.trim();
    while let Some(at) = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.') {
        let number: u64 = rest[..at].split('.').next()?.parse().ok()?;
        let unit = rest[at..].chars().next()?;
        let scale = [('h', 3600), ('m', 60), ('s', 1)].iter().find(|(name, _)| *name == unit)?.1;
        total = total.saturating_add(number.saturating_mul(scale));
        rest = &rest[at + unit.len_utf8()..];
    }
    (total > 0 && rest.is_empty()).then_some(total)
}

/// `35.3 MB` in bytes.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let scale = scale(unit.trim())?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenths: u64 = tenths.get(..1)?.parse().ok()?;
    Some(whole.parse::<u64>().ok()?.saturating_mul(scale).saturating_add(tenths * scale / 10))
}

fn scale(unit: &str) -> Option<u64> {
    let power = |names: [&str; 6]| u32::try_from(names.iter().position(|name| *name == unit)?).ok();
    let decimal = power(["B", "KB", "MB", "GB", "TB", "PB"]).map(|power| 1000_u64.pow(power));
    decimal.or_else(|| power(["B", "KiB", "MiB", "GiB", "TiB", "PiB"]).map(|power| 1024_u64.pow(power)))
}

/// A rounded size.
fn min_size(text: &str) -> Option<Size> {
    let scale = scale(text.trim().split_once(' ')?.1.trim())?;
    Some(Size { low: size(text)?.saturating_sub(scale / 20), step: (scale / 10).max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, bytes, uploaded bytes; estimate and seconds left.
    fn upload(line: &str) -> Option<([u64; 3], [Option<u64>; 2])> {
        match ProgressLine::parse(line)? {
            ProgressLine::Upload { files, bytes, uploaded, estimate, seconds_left, .. } => {
                Some(([files, bytes, uploaded], [estimate, seconds_left]))
            }
            ProgressLine::Restore { .. } => None,
        }
    }

    #[test]
    fn lines_of_a_backup_are_parsed_before_and_after_the_estimate() {
        let early = " | 1 hashing, 0 hashed (7 B), 0 cached (0 B), uploaded 0 B, estimating...";
        assert_eq!(upload(early), Some(([0, 7, 0], [None, None])));
        let later = " - 2 hashing, 4 hashed (110.4 MB), 6 cached (1.5 GB), uploaded 25.6 MB, estimated 2.1 GB (76.7%) 3s left   ";
        assert_eq!(upload(later), Some(([10, 1_560_350_000, 25_550_000], [Some(2_100_000_000), Some(3)])));
        let failing = " * 0 hashing, 2 hashed (7 B), 54 cached (110 MB), uploaded 0 B (1 fatal errors), estimated 1 KB (110.0%) 0s left";
        assert_eq!(upload(failing), Some(([56, 109_950_007, 0], [Some(1000), None])));
        let long =
            " / 1 hashing, 1 hashed (1 GiB), 0 cached (0 B), uploaded 1 KiB, estimated 4 GiB (25.0%) 1h2m3s left";
        assert_eq!(upload(long), Some(([1, (1 << 30) - (1 << 30) / 20, 1024 - 51], [Some(4 << 30), Some(3723)])));
        assert_eq!(ProgressLine::parse("Snapshotting default@default:x ..."), None);
    }

    #[test]
    fn the_lines_of_document_003_are_parsed() {
        let first =
            " / 1 hashing, 118 hashed (546.9 MB), 0 cached (0 B), uploaded 0 B, estimated 4.5 GB (12.1%) 35s left";
        assert_eq!(upload(first), Some(([118, 546_850_000, 0], [Some(4_500_000_000), Some(35)])));
        // A line that begins with * is not the end.
        let second =
            " * 0 hashing, 136 hashed (1.4 GB), 0 cached (0 B), uploaded 244 B, estimated 4.5 GB (30.1%) 30s left";
        assert_eq!(upload(second), Some(([136, 1_350_000_000, 244], [Some(4_500_000_000), Some(30)])));
    }

    #[test]
    fn lines_of_a_restore_contain_bytes_done_and_found() {
        let line = "Processed 203 (6.3 MB) of 205 (110 MB).";
        let expected = ProgressLine::Restore {
            entries: 203,
            bytes: 6_250_000,
            restored: Size { low: 6_250_000, step: 100_000 },
            found_entries: 205,
            found_bytes: 110_000_000,
            seconds_left: None,
        };
        assert_eq!(ProgressLine::parse(line), Some(expected));
        let full =
            "Processed 4 (6.1 KB) of 4 (8.2 KB), skipped 1 (2 KB), ignored 2 errors 2.1 MB/s (70.5%) remaining 3s.";
        let expected = ProgressLine::Restore {
            entries: 4,
            bytes: 6_050,
            restored: Size { low: 6_050, step: 100 },
            found_entries: 4,
            found_bytes: 8_200,
            seconds_left: Some(3),
        };
        assert_eq!(ProgressLine::parse(full), Some(expected));
    }

    #[test]
    fn an_error_after_progress_on_the_same_line_is_kept() {
        let error = "flush error: error flushing contents: dial tcp 10.0.0.1:443: connect: connection refused";
        for progress in [
            " | 1 hashing, 0 hashed (7 B), 0 cached (0 B), uploaded 0 B, estimating...",
            " - 2 hashing, 4 hashed (110.4 MB), 6 cached (1.5 GB), uploaded 25.6 MB, estimated 2.1 GB (76.7%) 3s left   ",
            "Processed 203 (6.3 MB) of 205 (110 MB).",
            "Processed 4 (6.1 KB) of 4 (8.2 KB), skipped 1 (2 KB), ignored 2 errors 2.1 MB/s (70.5%) remaining 1.5s.  ",
        ] {
            assert_eq!(strip_progress(progress), "", "{progress}");
            assert_eq!(strip_progress(&format!("{progress}{error}")), error, "{progress}");
        }
        assert_eq!(strip_progress(error), error);
    }
}
