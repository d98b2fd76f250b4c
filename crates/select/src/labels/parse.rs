//! Selectors as people write them: `app=web,tier in (a, b),!old`.

use std::collections::BTreeMap;

use super::{Expression, LabelSelector, Requirement, Test, invalid};
use crate::Error;

/// Reads a selector from its text, into the form that specs have.
pub fn parse(text: &str) -> Result<LabelSelector, Error> {
    let (mut labels, mut expressions) = (BTreeMap::new(), Vec::new());
    for Requirement { key, test } in requirements(text)? {
        let (operator, values) = match test {
            // `=` of two values cannot be told in a map: the second becomes an expression.
            Test::In(values) if values.len() == 1 && !labels.contains_key(&key) => {
                labels.extend(values.into_iter().map(|value| (key.clone(), value)));
                continue;
            }
            Test::In(values) => ("In", Some(values)),
            Test::NotIn(values) => ("NotIn", Some(values)),
            Test::Exists => ("Exists", None),
            Test::Absent => ("DoesNotExist", None),
            Test::Greater(_) | Test::Less(_) => return Err(invalid(&key, "a spec has no '<' and '>'")),
        };
        expressions.push(Expression { key, operator: operator.to_owned(), values });
    }
    Ok(LabelSelector {
        match_labels: (!labels.is_empty()).then_some(labels),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    })
}

/// The requirements of a text; none for an empty one.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut parser = Parser { text, rest: text };
    let mut found = Vec::new();
    if parser.peek().is_none() {
        return Ok(found);
    }
    loop {
        found.push(parser.requirement()?);
        match parser.next() {
            None => return Ok(found),
            Some(",") => {}
            Some(other) => return Err(parser.error(other, "expected ',' or the end")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

const SPECIAL: [char; 7] = [',', '(', ')', '!', '=', '<', '>'];

impl<'a> Parser<'a> {
    /// The next token: a word, or one of `, ( ) ! = == != < >`.
    fn next(&mut self) -> Option<&'a str> {
        let (token, rest) = split_token(self.rest)?;
        self.rest = rest;
        Some(token)
    }

    fn peek(&self) -> Option<&'a str> {
        split_token(self.rest).map(|(token, _)| token)
    }

    fn error(&self, part: &str, problem: &str) -> Error {
        invalid(if part.is_empty() { self.text } else { part }, problem)
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        match self.next() {
            Some("!") => {
                let key = self.word("expected a key after '!'")?;
                Requirement::new(key, Test::Absent)
            }
            Some(key) if !key.starts_with(SPECIAL) => {
                let test = self.test(key)?;
                Requirement::new(key, test)
            }
            other => Err(self.error(other.unwrap_or_default(), "expected a key")),
        }
    }

    fn test(&mut self, key: &str) -> Result<Test, Error> {
        match self.peek() {
            None | Some(",") => return Ok(Test::Exists),
            _ => {}
        }
        let operator = self.next().unwrap_or_default();
        match operator {
            "=" | "==" => Ok(Test::In(vec![self.value()?.to_owned()])),
            "!=" => Ok(Test::NotIn(vec![self.value()?.to_owned()])),
            "in" => Ok(Test::In(self.values(key)?)),
            "notin" => Ok(Test::NotIn(self.values(key)?)),
            ">" => Ok(Test::Greater(self.number()?)),
            "<" => Ok(Test::Less(self.number()?)),
            other => Err(self.error(other, "expected one of = == != in notin < >")),
        }
    }

    /// A value may be empty: `app=`.
    fn value(&mut self) -> Result<&'a str, Error> {
        match self.peek() {
            None | Some(",") => Ok(""),
            Some(_) => self.word("expected a value"),
        }
    }

    fn number(&mut self) -> Result<i64, Error> {
        let word = self.word("expected a number")?;
        word.parse().map_err(|_| self.error(word, "expected a number"))
    }

    fn word(&mut self, problem: &str) -> Result<&'a str, Error> {
        match self.next() {
            Some(word) if !word.starts_with(SPECIAL) => Ok(word),
            other => Err(self.error(other.unwrap_or_default(), problem)),
        }
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, Error> {
        if self.next() != Some("(") {
            return Err(self.error(key, "expected '(' and values after in or notin"));
        }
        let mut values = Vec::new();
        loop {
            // Nothing between commas is the empty value.
            match self.peek() {
                Some("," | ")") => values.push(String::new()),
                _ => values.push(self.word("expected a value")?.to_owned()),
            }
            match self.next() {
                Some(",") => {}
                Some(")") => return Ok(values),
                other => return Err(self.error(other.unwrap_or_default(), "expected ',' or ')'")),
            }
        }
    }
}

fn split_token(rest: &str) -> Option<(&str, &str)> {
    let rest = rest.trim_start();
    let first = rest.chars().next()?;
    let length = if SPECIAL.contains(&first) {
        let pair = rest.starts_with("==") || rest.starts_with("!=");
        if pair { 2 } else { 1 }
    } else {
        rest.find(|c: char| c.is_whitespace() || SPECIAL.contains(&c)).unwrap_or(rest.len())
    };
    Some(rest.split_at(length))
}
