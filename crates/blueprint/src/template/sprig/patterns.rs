//! Regular expressions, with linear time as in Go.

use regex::bytes::{Regex, RegexBuilder};

use super::super::eval_error::EvalError;
use super::super::format::FormatBuffer;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::Value;
use super::{bytes, int, text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "regexMatch",
        takes: "ss",
        run: |_, values| Ok(Value::Bool(pattern(&values[0]).is_ok_and(|found| found.is_match(bytes(&values[1]))))),
    },
    Function { name: "regexFind", takes: "ss", run: find },
    Function { name: "regexFindAll", takes: "ssi", run: find_all },
    Function { name: "regexReplaceAll", takes: "sss", run: |scope, values| replace(scope, values, true) },
    Function { name: "regexReplaceAllLiteral", takes: "sss", run: |scope, values| replace(scope, values, false) },
    Function { name: "regexSplit", takes: "ssi", run: split },
];

/// Maximum size of a compiled pattern.
const MAX_SIZE: usize = 1 << 20;

fn pattern(value: &Value) -> Result<Regex, EvalError> {
    let built = RegexBuilder::new(&text(value)).size_limit(MAX_SIZE).dfa_size_limit(MAX_SIZE).build();
    built.map_err(|_| EvalError::new("the regular expression cannot be used"))
}

fn most(value: &Value) -> usize {
    usize::try_from(int(value)).unwrap_or(usize::MAX)
}

fn find(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let found = pattern(&values[0])?.find(bytes(&values[1])).map(|found| found.as_bytes().to_vec());
    scope.text(found.unwrap_or_default())
}

fn find_all(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let pattern = pattern(&values[0])?;
    let found = pattern.find_iter(bytes(&values[1])).take(most(&values[2])).map(|found| found.as_bytes().to_vec());
    scope.texts(found.collect())
}

fn replace(scope: &mut Scope, values: &[Value], expands: bool) -> Result<Value, EvalError> {
    let (pattern, source, with) = (pattern(&values[0])?, bytes(&values[1]), bytes(&values[2]));
    let mut out = FormatBuffer::default();
    let mut end = 0;
    for captures in pattern.captures_iter(source) {
        let Some(found) = captures.get(0) else { continue };
        out.push(&source[end..found.start()])?;
        let mut expanded = Vec::new();
        if expands {
            // A replacement can refer to a group many times.
            Scope::room(with.len().saturating_mul(1 + found.len()))?;
            captures.expand(with, &mut expanded);
        }
        out.push(if expands { &expanded[..] } else { with })?;
        end = found.end();
    }
    out.push(&source[end..])?;
    scope.text(out.bytes)
}

fn split(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (pattern, source, most) = (pattern(&values[0])?, bytes(&values[1]), most(&values[2]));
    if most == 0 {
        return scope.texts(Vec::new());
    }
    if !text(&values[0]).is_empty() && source.is_empty() {
        return scope.texts(vec![Vec::new()]);
    }
    let mut pieces = Vec::new();
    let (mut start, mut end) = (0, 0);
    for found in pattern.find_iter(source) {
        if pieces.len() + 1 == most {
            break;
        }
        end = found.start();
        // An empty match at the start does not split.
        if found.end() != 0 {
            pieces.push(source[start..end].to_vec());
        }
        start = found.end();
    }
    if end != source.len() {
        pieces.push(source[start..].to_vec());
    }
    scope.texts(pieces)
}
