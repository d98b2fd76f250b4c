//! Semantic versions and conditions on them.

use std::cmp::Ordering;

use super::eval_error::EvalError;
use super::scope::Scope;
use super::value::Value;

/// A version; omitted parts are 0.
#[derive(Clone, Debug)]
pub(super) struct Version {
    numbers: [u64; 3],
    prerelease: String,
    metadata: String,
    original: String,
}

impl Version {
    pub(super) fn parse(text: &str) -> Result<Self, EvalError> {
        Self::read(text).ok_or_else(|| EvalError::new("Invalid Semantic Version"))
    }

    fn read(text: &str) -> Option<Self> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        let (plain, metadata) = plain.split_once('+').map_or((plain, None), |(plain, after)| (plain, Some(after)));
        let (plain, prerelease) = plain.split_once('-').map_or((plain, None), |(plain, after)| (plain, Some(after)));
        if !identifiers(prerelease) || !identifiers(metadata) {
            return None;
        }
        let mut numbers = [0; 3];
        let mut parts = plain.split('.');
        for number in &mut numbers {
            match parts.next() {
                Some(part) if part.bytes().all(|byte| byte.is_ascii_digit()) => *number = part.parse().ok()?,
                Some(_) => return None,
                None => break,
            }
        }
        parts.next().is_none().then(|| Self {
            numbers,
            prerelease: prerelease.unwrap_or_default().to_owned(),
            metadata: metadata.unwrap_or_default().to_owned(),
            original: text.to_owned(),
        })
    }

    pub(super) fn shown(&self) -> String {
        let [major, minor, patch] = self.numbers;
        let after = |sign: &str, text: &str| if text.is_empty() { String::new() } else { format!("{sign}{text}") };
        format!("{major}.{minor}.{patch}{}{}", after("-", &self.prerelease), after("+", &self.metadata))
    }

    fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.prerelease.as_str(), other.prerelease.as_str()) {
            (one, other) if one == other => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (one, other) => prerelease_order(one, other),
        })
    }

    /// The methods that a template may call.
    pub(super) fn method(&self, scope: &mut Scope, name: &str, given: &[Value]) -> Result<Value, EvalError> {
        let number = |number: u64| Ok(Value::int64(i64::try_from(number).unwrap_or(i64::MAX)));
        match (name, given) {
            ("Major", []) => number(self.numbers[0]),
            ("Minor", []) => number(self.numbers[1]),
            ("Patch", []) => number(self.numbers[2]),
            ("Prerelease", []) => scope.text(self.prerelease.clone()),
            ("Metadata", []) => scope.text(self.metadata.clone()),
            ("Original", []) => scope.text(self.original.clone()),
            ("String", []) => scope.text(self.shown()),
            ("Compare", [Value::Version(other)]) => Ok(Value::int(self.order(other) as i64)),
            _ => Err(EvalError::new(format!("can't evaluate field {name} in type *semver.Version"))),
        }
    }
}

/// Dot-separated identifiers of letters, digits and hyphens.
fn identifiers(text: Option<&str>) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.is_none_or(|text| text.split('.').all(|part| !part.is_empty() && part.bytes().all(good)))
}

fn prerelease_order(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.split('.'), other.split('.'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) => {
                return match (one.parse::<u64>(), other.parse::<u64>()) {
                    (Ok(one), Ok(other)) => one.cmp(&other),
                    (Ok(_), Err(_)) => Ordering::Less,
                    (Err(_), Ok(_)) => Ordering::Greater,
                    _ => one.cmp(other),
                };
            }
        }
    }
}

/// Whether a version meets a condition such as `>= 1.2, < 2 || ^3`.
pub(super) fn meets(condition: &str, version: &Version) -> Result<bool, EvalError> {
    let mut met = false;
    for alternative in condition.split("||") {
        let mut all = true;
        for part in ranges_spelled_out(alternative).split(',') {
            all &= Clause::parse(part)?.admits(version);
        }
        met |= all;
    }
    Ok(met)
}

/// `1.2 - 3` is `>= 1.2, <= 3`.
fn ranges_spelled_out(text: &str) -> String {
    match text.split_once(" - ") {
        Some((from, to)) => format!(">= {}, <= {}", from.trim(), to.trim()),
        None => text.to_owned(),
    }
}

/// One comparison.
struct Clause {
    operator: String,
    version: Version,
    /// Which parts are wildcards.
    any: bool,
    any_minor: bool,
    any_patch: bool,
}

impl Clause {
    fn parse(text: &str) -> Result<Self, EvalError> {
        let wrong = || EvalError::new(format!("improper constraint: {text}"));
        let trimmed = text.trim();
        let operator_length = trimmed.find(|next: char| !"=!<>~^".contains(next)).unwrap_or(trimmed.len());
        let (operator, rest) = trimmed.split_at(operator_length);
        if !matches!(operator, "" | "=" | "!=" | ">" | "<" | ">=" | "=>" | "<=" | "=<" | "~" | "~>" | "^") {
            return Err(wrong());
        }
        let rest = rest.trim();
        let plain = rest.strip_prefix('v').unwrap_or(rest);
        let numbers_end = plain.find(['-', '+']).unwrap_or(plain.len());
        let (numbers, after) = plain.split_at(numbers_end);
        let parts: Vec<&str> = numbers.split('.').collect();
        let open = |at: usize| parts.get(at).is_some_and(|part| matches!(*part, "x" | "X" | "*"));
        let prerelease = after.split('+').next().unwrap_or_default();
        let (spelled, any_minor, any_patch) = match parts.as_slice() {
            [_, ..] if open(0) => ("0.0.0".to_owned(), false, false),
            [major] => (format!("{major}.0.0{prerelease}"), true, false),
            [major, ..] if open(1) => (format!("{major}.0.0{prerelease}"), true, false),
            [major, minor, _] if open(2) => (format!("{major}.{minor}.0{prerelease}"), false, true),
            _ => (rest.to_owned(), false, false),
        };
        let any = open(0) || any_minor || any_patch;
        let version = Version::read(&spelled).ok_or_else(wrong)?;
        Ok(Self { operator: operator.to_owned(), version, any, any_minor, any_patch })
    }

    fn admits(&self, version: &Version) -> bool {
        let unwanted_prerelease = !version.prerelease.is_empty() && self.version.prerelease.is_empty();
        if unwanted_prerelease && (self.operator != "!=" || self.any) {
            return false;
        }
        let order = version.order(&self.version);
        match self.operator.as_str() {
            "!=" if self.any => version.numbers[0] != self.version.numbers[0] || self.other_minor(version),
            "!=" => order != Ordering::Equal,
            ">" => order == Ordering::Greater,
            ">=" | "=>" => order != Ordering::Less,
            "<" if !self.any => order == Ordering::Less,
            "<=" | "=<" if !self.any => order != Ordering::Greater,
            "<" | "<=" | "=<" => {
                version.numbers[0] <= self.version.numbers[0]
                    && (self.any_minor || version.numbers[1] <= self.version.numbers[1])
            }
            "^" => order != Ordering::Less && version.numbers[0] == self.version.numbers[0],
            "" | "=" if !self.any => order == Ordering::Equal,
            _ => order != Ordering::Less && self.same_minor(version),
        }
    }

    fn other_minor(&self, version: &Version) -> bool {
        !self.any_minor && version.numbers[1] != self.version.numbers[1]
    }

    /// `~`: every version from 0.0.0 if no part is given.
    fn same_minor(&self, version: &Version) -> bool {
        let everything = self.version.numbers == [0; 3] && !self.any_minor && !self.any_patch;
        everything || version.numbers[0] == self.version.numbers[0] && !self.other_minor(version)
    }
}
