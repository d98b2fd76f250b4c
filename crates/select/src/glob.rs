//! Glob patterns for names: `*` any characters, `?` one character, `[a-z]` and `[!a-z]` character classes, `{a,b}` alternatives.
//!
//! With a separator, `*` and `?` do not match it; `**` does.

use regex::Regex;

use crate::Error;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Glob(Matcher);

#[derive(Debug, Clone)]
enum Matcher {
    Any,
    Exactly(String),
    // The most frequent kind of wildcard; cheaper than a regular expression.
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
        let invalid = |problem: String| Error::Pattern { pattern: pattern.to_owned(), problem };
        let regex = translate(pattern, separator).map_err(|problem| invalid(problem.to_owned()))?;
        Regex::new(&regex).map(|regex| Self(Matcher::Regex(regex))).map_err(|e| invalid(e.to_string()))
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Matcher::Any => true,
            Matcher::Exactly(literal) => name == literal,
            Matcher::Prefix(prefix) => name.starts_with(prefix),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// Whether a name contains a wildcard.
pub fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// Translates the pattern to a regular expression: matching takes linear time for every pattern.
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
            '[' => regex.push_str(&translate_class(&mut rest)?),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            '\\' => regex.push_str(&literal(rest.next().ok_or("trailing backslash")?)),
            other => regex.push_str(&literal(other)),
        }
    }
    if depth > 0 {
        return Err("unclosed brace");
    }
    regex.push('$');
    Ok(regex)
}

fn literal(c: char) -> String {
    regex::escape(&c.to_string())
}

fn translate_class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, &'static str> {
    let mut class = String::from(if rest.next_if_eq(&'!').is_some() { "[^" } else { "[" });
    let mut empty = true;
    loop {
        match rest.next().ok_or("unclosed bracket")? {
            ']' if empty => return Err("empty bracket"),
            ']' => break,
            '-' if !empty && rest.peek().is_some_and(|next| *next != ']') => class.push('-'),
            c => {
                // Other characters than letters and digits may be special inside a class.
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
