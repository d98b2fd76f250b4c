//! Parser for label selectors: `app=web,tier in (a, b),!old`.

use std::collections::BTreeMap;

use super::{Expression, LabelSelector, Operator, Requirement, selector_error};
use crate::Error;

/// Parses a selector into the form of a spec.
pub fn parse(text: &str) -> Result<LabelSelector, Error> {
    let (mut labels, mut expressions) = (BTreeMap::new(), Vec::new());
    for Requirement { key, operator } in parse_requirements(text)? {
        let (name, values) = match operator {
            // A map holds one value for a key: a second `=` becomes an expression.
            Operator::In(values) if values.len() == 1 && !labels.contains_key(&key) => {
                labels.extend(values.into_iter().map(|value| (key.clone(), value)));
                continue;
            }
            Operator::In(values) => ("In", Some(values)),
            Operator::NotIn(values) => ("NotIn", Some(values)),
            Operator::Exists => ("Exists", None),
            Operator::DoesNotExist => ("DoesNotExist", None),
            Operator::GreaterThan(_) | Operator::LessThan(_) => {
                return Err(selector_error(&key, "'<' and '>' are not supported in a spec"));
            }
        };
        expressions.push(Expression { key, operator: name.to_owned(), values });
    }
    Ok(LabelSelector {
        match_labels: (!labels.is_empty()).then_some(labels),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    })
}

/// Parses the requirements; none for an empty text.
pub(super) fn parse_requirements(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut parser = Parser { text, rest: text };
    let mut requirements = Vec::new();
    if parser.peek().is_none() {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.next() {
            None => return Ok(requirements),
            Some(",") => {}
            Some(other) => return Err(parser.error(other, "expected ',' or the end")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

const SPECIAL_CHARACTERS: [char; 7] = [',', '(', ')', '!', '=', '<', '>'];

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
        selector_error(if part.is_empty() { self.text } else { part }, problem)
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        match self.next() {
            Some("!") => {
                let key = self.word("expected a key after '!'")?;
                Requirement::new(key, Operator::DoesNotExist)
            }
            Some(key) if !key.starts_with(SPECIAL_CHARACTERS) => {
                let operator = self.operator(key)?;
                Requirement::new(key, operator)
            }
            other => Err(self.error(other.unwrap_or_default(), "expected a key")),
        }
    }

    fn operator(&mut self, key: &str) -> Result<Operator, Error> {
        match self.peek() {
            None | Some(",") => return Ok(Operator::Exists),
            _ => {}
        }
        let symbol = self.next().unwrap_or_default();
        match symbol {
            "=" | "==" => Ok(Operator::In(vec![self.value()?.to_owned()])),
            "!=" => Ok(Operator::NotIn(vec![self.value()?.to_owned()])),
            "in" => Ok(Operator::In(self.values(key)?)),
            "notin" => Ok(Operator::NotIn(self.values(key)?)),
            ">" => Ok(Operator::GreaterThan(self.number()?)),
            "<" => Ok(Operator::LessThan(self.number()?)),
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
            Some(word) if !word.starts_with(SPECIAL_CHARACTERS) => Ok(word),
            other => Err(self.error(other.unwrap_or_default(), problem)),
        }
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, Error> {
        if self.next() != Some("(") {
            return Err(self.error(key, "expected '(' and values after in or notin"));
        }
        let mut values = Vec::new();
        loop {
            // An empty value between commas is the empty string.
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
    let length = if SPECIAL_CHARACTERS.contains(&first) {
        let pair = rest.starts_with("==") || rest.starts_with("!=");
        if pair { 2 } else { 1 }
    } else {
        rest.find(|c: char| c.is_whitespace() || SPECIAL_CHARACTERS.contains(&c)).unwrap_or(rest.len())
    };
    Some(rest.split_at(length))
}
