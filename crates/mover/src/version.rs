//! Program versions.

use std::fmt;

/// Three numbers, compared from the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// The first word of a text that looks like a version.
    pub(crate) fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(Self::parse)
    }

    fn parse(word: &str) -> Option<Self> {
        let mut parts = word.trim_start_matches('v').split('.').map(leading_number);
        let (major, minor) = (parts.next()??, parts.next()??);
        Some(Self(major, minor, parts.next().flatten().unwrap_or(0)))
    }
}

fn leading_number(part: &str) -> Option<u32> {
    let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
    part[..end].parse().ok()
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        for (text, version) in [
            ("restic 0.14.0 compiled with go1.19.8 on linux/amd64", Version(0, 14, 0)),
            ("restic 0.9.4 (v0.9.4-0-g1234) compiled with go1.11", Version(0, 9, 4)),
            ("restic 0.18.1-dev (compiled manually) compiled with go1.26.8", Version(0, 18, 1)),
            ("0.22.3 build: -(unknown_revision) from: ", Version(0, 22, 3)),
            ("v0.17", Version(0, 17, 0)),
        ] {
            assert_eq!(Version::find(text), Some(version), "{text}");
        }
        assert_eq!(Version::find("command not found"), None);
        assert!(Version(0, 9, 4) < Version(0, 9, 5) && Version(0, 14, 0) > Version(0, 9, 5));
    }
}
