//! Lists of what is in and what is out.

use crate::Error;
use crate::glob::{Glob, has_wildcard};

/// Patterns, any of which may match.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    patterns: Vec<(String, Glob)>,
}

impl Globs {
    /// Compiles a list of patterns.
    pub fn new<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let compile = |pattern: S| Ok((pattern.as_ref().to_owned(), Glob::new(pattern.as_ref())?));
        Ok(Self { patterns: patterns.into_iter().map(compile).collect::<Result<_, Error>>()? })
    }

    /// Whether any of them matches.
    pub fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|(_, glob)| glob.matches(name))
    }

    /// Whether the pattern itself is one of them.
    pub fn contains(&self, pattern: &str) -> bool {
        self.patterns.iter().any(|(own, _)| own == pattern)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The patterns, as written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|(pattern, _)| pattern.as_str())
    }

    pub(crate) fn push(&mut self, pattern: &str) -> Result<(), Error> {
        self.patterns.push((pattern.to_owned(), Glob::new(pattern)?));
        Ok(())
    }
}

/// What is in unless it is out. No list of what is in: everything is.
#[derive(Debug, Clone, Default)]
pub struct IncludesExcludes {
    /// What is in.
    pub includes: Globs,
    /// What is out, whatever else is said.
    pub excludes: Globs,
}

impl IncludesExcludes {
    /// Compiles both lists.
    pub fn new<S: AsRef<str>, T: AsRef<str>>(includes: &[S], excludes: &[T]) -> Result<Self, Error> {
        Ok(Self { includes: Globs::new(includes)?, excludes: Globs::new(excludes)? })
    }

    /// Whether a name is in.
    pub fn includes(&self, name: &str) -> bool {
        !self.excludes.matches(name) && (self.includes.is_empty() || self.includes.matches(name))
    }

    /// Whether nothing is left out.
    pub fn everything(&self) -> bool {
        let all = self.includes.is_empty() || self.includes.iter().eq(["*"]);
        all && self.excludes.is_empty()
    }

    /// As [`Self::everything`], for patterns that happen to mean every one of these names.
    pub fn everything_of<S: AsRef<str>>(&self, names: &[S]) -> bool {
        if self.everything() {
            return true;
        }
        if names.is_empty() || self.includes.is_empty() || self.includes.contains("*") {
            return false;
        }
        let is_there = |name: &str| names.iter().any(|other| other.as_ref() == name);
        let no_excludes = self
            .excludes
            .patterns
            .iter()
            .all(|(pattern, glob)| has_wildcard(pattern) && !names.iter().any(|name| glob.matches(name.as_ref())));
        let literal_ones_exist = self.includes.iter().filter(|name| !has_wildcard(name)).all(is_there);
        no_excludes && literal_ones_exist && names.iter().all(|name| self.includes.matches(name.as_ref()))
    }
}

/// What is wrong with a pair of lists of resources, old style.
pub fn check(includes: &[String], excludes: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    if includes.len() > 1 && includes.iter().any(|name| name == "*") {
        problems.push("includes list must either contain '*' only, or a non-empty list of items".to_owned());
    }
    if excludes.iter().any(|name| name == "*") {
        problems.push("excludes list cannot contain '*'".to_owned());
    }
    problems.extend(in_both(includes, excludes));
    problems
}

/// What is wrong with a pair of lists of resources of one scope, where everything may be left out.
pub fn check_scoped(includes: &[String], excludes: &[String]) -> Vec<String> {
    let all = |list: &[String]| list.iter().any(|name| name == "*");
    let mut problems = Vec::new();
    if includes.len() > 1 && all(includes) {
        problems.push("includes list must either contain '*' only, or a non-empty list of items".to_owned());
    }
    if excludes.len() > 1 && all(excludes) {
        problems.push("excludes list must either contain '*' only, or a non-empty list of items".to_owned());
    }
    if !includes.is_empty() && all(excludes) {
        problems.push("when exclude is '*', include cannot have value".to_owned());
    }
    problems.extend(in_both(includes, excludes));
    problems
}

/// What is wrong with a pair of lists of namespaces.
pub fn check_namespaces(includes: &[String], excludes: &[String]) -> Vec<String> {
    let mut problems = check(includes, excludes);
    problems.extend(includes.iter().chain(excludes).filter_map(|name| check_namespace(name).err()));
    problems
}

fn in_both<'a>(includes: &'a [String], excludes: &'a [String]) -> impl Iterator<Item = String> + 'a {
    excludes
        .iter()
        .filter(|name| includes.contains(name))
        .map(|name| format!("excludes list cannot contain an item in the includes list: {name}"))
}

/// Whether this can be the name of a namespace, or a pattern for one. The empty name means "no namespace".
pub fn check_namespace(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Ok(());
    }
    if name.contains(['|', '(', ')', '!', '{', '}', ',']) {
        return Err(format!("namespace pattern {name:?} contains one of the unsupported characters | ( ) ! {{ }} ,"));
    }
    if name.contains("**") {
        return Err(format!("namespace pattern {name:?} contains consecutive asterisks"));
    }
    Glob::new(name).map_err(|error| error.to_string())?;
    if unmatched_bracket(name) {
        return Err(format!("namespace pattern {name:?} contains an unmatched closing bracket"));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let wild = |c: char| matches!(c, '*' | '?' | '[' | ']');
    let ends = name.starts_with(|c| plain(c) || wild(c)) && name.ends_with(|c| plain(c) || wild(c));
    if !ends || name.len() > 63 || !name.chars().all(|c| plain(c) || wild(c) || c == '-') {
        return Err(format!(
            "invalid namespace {name:?}: at most 63 lower case letters, digits and '-', a letter or digit at each end"
        ));
    }
    Ok(())
}

fn unmatched_bracket(name: &str) -> bool {
    let mut open = false;
    name.chars().any(|c| {
        let unmatched = c == ']' && !open;
        open = (open || c == '[') && c != ']';
        unmatched
    })
}
