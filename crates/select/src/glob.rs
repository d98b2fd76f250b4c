//! Patterns for names: `*` any run, `?` any character, `[a-z]` and `[!a-z]` one of a class, `{a,b}` alternatives.
//!
//! With a separator `*` and `?` stop at it and `**` does not.

use regex::Regex;

use crate::Error;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Glob(Matcher);

#[derive(Debug, Clone)]
enum Matcher {
    Any,
    Exactly(String),
    // Most patterns with a wildcard are of this form, and names are many.
    Prefix(String),
    Regex(Regex),
}

impl Glob {
    /// Compiles a pattern without separator.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        Self::with_separator(pattern, None)
    }

    /// Compiles a pattern.
    pub fn with_separator(pattern: &str, separator: Option<char>) -> Result<Self, Error> {
        if !pattern.contains(['*', '?', '[', '{', '\\']) {
            return Ok(Self(Matcher::Exactly(pattern.to_owned())));
        }
        if separator.is_none() {
            if pattern == "*" {
                return Ok(Self(Matcher::Any));
            }
            if let Some(prefix) = pattern.strip_suffix('*')
                && !prefix.contains(['*', '?', '[', '{', '\\'])
            {
                return Ok(Self(Matcher::Prefix(prefix.to_owned())));
            }
        }
        let bad = |problem: String| Error::Pattern { pattern: pattern.to_owned(), problem };
        let regex = translate(pattern, separator).map_err(|problem| bad(problem.to_owned()))?;
        Regex::new(&regex).map(|regex| Self(Matcher::Regex(regex))).map_err(|e| bad(e.to_string()))
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Matcher::Any => true,
            Matcher::Exactly(wanted) => name == wanted,
            Matcher::Prefix(prefix) => name.starts_with(prefix),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// Whether a name is a pattern at all.
pub fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// The pattern as a regular expression: that engine's time is linear whatever the pattern.
fn translate(pattern: &str, separator: Option<char>) -> Result<String, &'static str> {
    let any = separator.map_or_else(|| ".".to_owned(), |c| format!("[^{}]", regex::escape(&c.to_string())));
    let mut regex = String::from("(?s)^");
    let mut depth = 0_u32;
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.next_if_eq(&'*').is_some() => regex.push_str(".*"),
            '*' => regex.extend([any.as_str(), "*"]),
            '?' => regex.push_str(&any),
            '[' => regex.push_str(&class(&mut rest)?),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            '\\' => regex.push_str(&literal(rest.next().ok_or("it ends in a backslash")?)),
            other => regex.push_str(&literal(other)),
        }
    }
    if depth > 0 {
        return Err("a brace is not closed");
    }
    regex.push('$');
    Ok(regex)
}

fn literal(c: char) -> String {
    regex::escape(&c.to_string())
}

fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, &'static str> {
    let mut class = String::from(if rest.next_if_eq(&'!').is_some() { "[^" } else { "[" });
    let mut empty = true;
    loop {
        match rest.next().ok_or("a bracket is not closed")? {
            ']' if empty => return Err("a bracket is empty"),
            ']' => break,
            '-' if !empty && rest.peek().is_some_and(|next| *next != ']') => class.push('-'),
            c => {
                // Everything but letters and digits may mean something inside a class.
                if !c.is_alphanumeric() {
                    class.push('\\');
                }
                class.push(c);
                empty = false;
            }
        }
    }
    class.push(']');
    Ok(class)
}
