//! Lists of includes and excludes.

use crate::Error;
use crate::glob::{Glob, has_wildcard};

/// A list of patterns.
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

    /// Whether any pattern matches.
    pub fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|(_, glob)| glob.matches(name))
    }

    /// Whether the list contains this pattern literally.
    pub fn contains(&self, pattern: &str) -> bool {
        self.patterns.iter().any(|(own, _)| own == pattern)
    }

    /// Whether the list is empty.
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

/// Includes and excludes, as in Velero: an empty list of includes means everything; excludes take precedence.
#[derive(Debug, Clone, Default)]
pub struct IncludesExcludes {
    /// Patterns to include.
    pub includes: Globs,
    /// Patterns to exclude; they take precedence.
    pub excludes: Globs,
}

impl IncludesExcludes {
    /// Compiles both lists.
    pub fn new<S: AsRef<str>, T: AsRef<str>>(includes: &[S], excludes: &[T]) -> Result<Self, Error> {
        Ok(Self { includes: Globs::new(includes)?, excludes: Globs::new(excludes)? })
    }

    /// Whether a name is included.
    pub fn includes(&self, name: &str) -> bool {
        !self.excludes.matches(name) && (self.includes.is_empty() || self.includes.matches(name))
    }

    /// Whether everything is included.
    pub fn includes_everything(&self) -> bool {
        let all = self.includes.is_empty() || self.includes.iter().eq(["*"]);
        all && self.excludes.is_empty()
    }

    /// As [`Self::includes_everything`], or whether the patterns match every one of these names.
    pub fn includes_all_of<S: AsRef<str>>(&self, names: &[S]) -> bool {
        if self.includes_everything() {
            return true;
        }
        if names.is_empty() || self.includes.is_empty() || self.includes.contains("*") {
            return false;
        }
        let exists = |name: &str| names.iter().any(|other| other.as_ref() == name);
        let no_excludes = self
            .excludes
            .patterns
            .iter()
            .all(|(pattern, glob)| has_wildcard(pattern) && !names.iter().any(|name| glob.matches(name.as_ref())));
        let literal_ones_exist = self.includes.iter().filter(|name| !has_wildcard(name)).all(exists);
        no_excludes && literal_ones_exist && names.iter().all(|name| self.includes.matches(name.as_ref()))
    }
}

/// Validates unscoped includes and excludes; returns the errors.
pub fn validate_includes_excludes(includes: &[String], excludes: &[String]) -> Vec<String> {
    let mut errors = Vec::new();
    if includes.len() > 1 && includes.iter().any(|name| name == "*") {
        errors.push("includes list must either contain '*' only, or a non-empty list of items".to_owned());
    }
    if excludes.iter().any(|name| name == "*") {
        errors.push("excludes list cannot contain '*'".to_owned());
    }
    errors.extend(errors_of_overlap(includes, excludes));
    errors
}

/// Validates the includes and excludes of one scope, where `*` may be excluded; returns the errors.
pub fn validate_scoped_includes_excludes(includes: &[String], excludes: &[String]) -> Vec<String> {
    let all = |list: &[String]| list.iter().any(|name| name == "*");
    let mut errors = Vec::new();
    if includes.len() > 1 && all(includes) {
        errors.push("includes list must either contain '*' only, or a non-empty list of items".to_owned());
    }
    if excludes.len() > 1 && all(excludes) {
        errors.push("excludes list must either contain '*' only, or a non-empty list of items".to_owned());
    }
    if !includes.is_empty() && all(excludes) {
        errors.push("when exclude is '*', include cannot have value".to_owned());
    }
    errors.extend(errors_of_overlap(includes, excludes));
    errors
}

/// Validates the includes and excludes of namespaces; returns the errors.
pub fn validate_namespace_includes_excludes(includes: &[String], excludes: &[String]) -> Vec<String> {
    let mut errors = validate_includes_excludes(includes, excludes);
    errors.extend(includes.iter().chain(excludes).filter_map(|name| validate_namespace(name).err()));
    errors
}

fn errors_of_overlap<'a>(includes: &'a [String], excludes: &'a [String]) -> impl Iterator<Item = String> + 'a {
    excludes
        .iter()
        .filter(|name| includes.contains(name))
        .map(|name| format!("excludes list cannot contain an item in the includes list: {name}"))
}

/// Validates the name of a namespace or a pattern for names. An empty name means "no namespace".
pub fn validate_namespace(name: &str) -> Result<(), String> {
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
    if has_unmatched_bracket(name) {
        return Err(format!("namespace pattern {name:?} contains an unmatched closing bracket"));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let wild = |c: char| matches!(c, '*' | '?' | '[' | ']');
    let ends = name.starts_with(|c| plain(c) || wild(c)) && name.ends_with(|c| plain(c) || wild(c));
    if !ends || name.len() > 63 || !name.chars().all(|c| plain(c) || wild(c) || c == '-') {
        return Err(format!(
            "invalid namespace {name:?}: must be at most 63 lower case letters, digits and '-', starting and ending with a letter \
             or digit"
        ));
    }
    Ok(())
}

fn has_unmatched_bracket(name: &str) -> bool {
    let mut open = false;
    name.chars().any(|c| {
        let unmatched = c == ']' && !open;
        open = (open || c == '[') && c != ']';
        unmatched
    })
}
