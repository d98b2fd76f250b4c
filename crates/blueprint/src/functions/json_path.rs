//! JSONPath expressions in the conditions of Wait, with the syntax of `kubectl -o jsonpath`.
//!
//! Supported: fields, `*`, `..field`, indexes, slices, unions of these, and filters with one comparison. Functions are not.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// `..field`
    Descendants(String),
    All,
    Slice(Slice),
    /// `[0,2]`, `['a','b']`
    Union(Vec<Step>),
    Filter(Filter),
}

/// `[start:end:step]`; `[3]` has a start only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    single: bool,
}

/// `[?(@.field == "value")]`; without a comparison the field has to exist.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    path: JsonPath,
    comparison: Option<(Comparison, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
}

/// The longer of two operators with the same beginning comes first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl JsonPath {
    /// Parses `$.status.phase`; the `$` may be missing.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.trim();
        rest = rest.strip_prefix(['$', '@']).unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = next_step(rest)?;
            steps.push(step);
            rest = after;
        }
        Ok(Self(steps))
    }

    /// The values, separated by spaces. A field that does not exist is an error; an empty list is an empty text.
    pub(crate) fn evaluate(&self, object: &Value) -> Result<String, String> {
        let show = |value: &&Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok(self.find(object)?.iter().map(show).collect::<Vec<_>>().join(" "))
    }

    fn find<'v>(&self, object: &'v Value) -> Result<Vec<&'v Value>, String> {
        self.0.iter().try_fold(vec![object], |found, step| step.apply(&found))
    }
}

fn next_step(rest: &str) -> Result<(Step, &str), String> {
    if let Some(inner) = rest.strip_prefix('[') {
        let end = closing_bracket(inner).ok_or("unclosed bracket")?;
        return Ok((bracket(inner[..end].trim())?, &inner[end + 1..]));
    }
    if let Some(name) = rest.strip_prefix("..") {
        let (field, after) = split_name(name)?;
        return Ok((Step::Descendants(field.to_owned()), after));
    }
    let (field, after) = split_name(rest.strip_prefix('.').unwrap_or(rest))?;
    Ok((if field == "*" { Step::All } else { Step::Field(field.replace("\\.", ".")) }, after))
}

/// The name at the beginning of a text. A dot in a name is written as `\.`.
fn split_name(text: &str) -> Result<(&str, &str), String> {
    let escaped = |at: usize| text[..at].ends_with('\\');
    let end = text.match_indices(['.', '[']).map(|(at, _)| at).find(|at| !escaped(*at)).unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    match name {
        "" => Err("empty step".into()),
        name if name.contains(|character: char| character.is_whitespace() || "()=<>'\"".contains(character)) => {
            Err(format!("unsupported {name:?}"))
        }
        name => Ok((name, after)),
    }
}

/// The position of the bracket that closes one that is open. Brackets in quotes do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (1, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn bracket(inside: &str) -> Result<Step, String> {
    if inside == "*" || inside.is_empty() {
        return Ok(Step::All);
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        return Filter::parse(filter).map(Step::Filter);
    }
    let members: Vec<_> = split_union(inside);
    if members.len() > 1 {
        return members.into_iter().map(bracket).collect::<Result<_, _>>().map(Step::Union);
    }
    if let Some(name) = unquoted(inside) {
        return Ok(Step::Field(name.to_owned()));
    }
    Slice::parse(inside).map(Step::Slice).ok_or_else(|| format!("unsupported [{inside}]"))
}

/// The members of a union, separated by commas outside of quotes.
fn split_union(inside: &str) -> Vec<&str> {
    let mut quote = None;
    let separates = |character: char| {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            _ => {}
        }
        quote.is_none() && character == ','
    };
    inside.split(separates).map(str::trim).collect()
}

fn unquoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|character| ['\'', '"'].contains(character))?;
    text.strip_prefix(quote)?.strip_suffix(quote)
}

impl Slice {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':').map(str::trim);
        let number = |part: Option<&str>| match part {
            None | Some("") => Some(None),
            Some(part) => part.parse().ok().map(Some),
        };
        let slice = Self {
            start: number(parts.next())?,
            end: number(parts.next())?,
            step: number(parts.next())?,
            single: !text.contains(':'),
        };
        (parts.next().is_none() && slice.step.is_none_or(|step| step > 0)).then_some(slice)
    }

    fn of<'v>(&self, items: &'v [Value]) -> Result<Vec<&'v Value>, String> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let from_end = |index: i64| if index < 0 { length + index } else { index };
        let start = from_end(self.start.unwrap_or(0));
        if self.single {
            let item = usize::try_from(start).ok().and_then(|at| items.get(at));
            return item.map(|item| vec![item]).ok_or_else(|| format!("index {start} of {length} items"));
        }
        let end = from_end(self.end.unwrap_or(length)).clamp(0, length);
        let (start, step) = (start.clamp(0, length), self.step.unwrap_or(1));
        let count = usize::try_from((end - start).max(0)).unwrap_or(0);
        let items = items.iter().skip(usize::try_from(start).unwrap_or(0)).take(count);
        Ok(items.step_by(usize::try_from(step).unwrap_or(1)).collect())
    }
}

impl Filter {
    fn parse(text: &str) -> Result<Self, String> {
        let operator = COMPARISONS
            .iter()
            .filter_map(|(symbol, comparison)| Some((text.find(symbol)?, *symbol, *comparison)))
            .min_by_key(|(at, symbol, _)| (*at, std::cmp::Reverse(symbol.len())));
        let Some((at, symbol, comparison)) = operator else {
            return Ok(Self { path: JsonPath::parse(text)?, comparison: None });
        };
        let value = text[at + symbol.len()..].trim();
        let value = unquoted(value)
            .map(Value::from)
            .or_else(|| serde_json::from_str(value).ok())
            .ok_or_else(|| format!("unsupported value {value} in a filter"))?;
        Ok(Self { path: JsonPath::parse(&text[..at])?, comparison: Some((comparison, value)) })
    }

    fn matches(&self, item: &Value) -> bool {
        let found = self.path.find(item).ok().and_then(|found| found.first().copied());
        match (&self.comparison, found) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some((comparison, wanted)), Some(found)) => comparison.holds(found, wanted),
        }
    }
}

impl Comparison {
    fn holds(self, found: &Value, wanted: &Value) -> bool {
        let order = match (found.as_f64(), wanted.as_f64()) {
            (Some(found), Some(wanted)) => found.partial_cmp(&wanted),
            // A number or a flag may be compared with its text.
            _ => Some(text_of(found).cmp(&text_of(wanted))),
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order.is_some_and(Ordering::is_ne),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::Greater => order.is_some_and(Ordering::is_gt),
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Step {
    fn apply<'v>(&self, values: &[&'v Value]) -> Result<Vec<&'v Value>, String> {
        let mut found = Vec::new();
        for value in values {
            match self {
                Self::Field(name) => found.extend(value.get(name)),
                Self::Descendants(name) => add_descendants(value, name, &mut found),
                Self::All => found.extend(children(value)),
                Self::Slice(slice) => found.extend(slice.of(items(value)?)?),
                Self::Union(members) => {
                    for member in members {
                        found.extend(member.apply(&[value])?);
                    }
                }
                Self::Filter(filter) => found.extend(items(value)?.iter().filter(|item| filter.matches(item))),
            }
        }
        match self {
            Self::Field(name) if found.is_empty() && !values.is_empty() => Err(format!("{name} is not found")),
            _ => Ok(found),
        }
    }
}

fn items(value: &Value) -> Result<&[Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| "not a list".to_owned())
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

fn add_descendants<'v>(value: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
    found.extend(value.get(name));
    for child in children(value) {
        add_descendants(child, name, found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evaluate(path: &str) -> Result<String, String> {
        let object = json!({ "status": { "phase": "Running", "ready": 2, "none": [], "a.b": 1,
            "conditions": [
                { "type": "Ready", "status": "True", "at": 3 },
                { "type": "Other", "status": "False", "at": 5 },
                { "type": "Last", "status": "True", "at": 9 },
            ] } });
        JsonPath::parse(path)?.evaluate(&object)
    }

    #[test]
    fn expressions_have_the_values_of_kubectl() {
        for (path, expected) in [
            ("$.status.phase", "Running"),
            ("$['status']['phase']", "Running"),
            (r"$.status.a\.b", "1"),
            ("$.status.conditions[0].type", "Ready"),
            ("$.status.conditions[-1].type", "Last"),
            ("$.status.conditions[*].status", "True False True"),
            ("$.status.conditions[].status", "True False True"),
            ("$.status.conditions[1:].type", "Other Last"),
            ("$.status.conditions[:-1].type", "Ready Other"),
            ("$.status.conditions[0:3:2].type", "Ready Last"),
            ("$.status.conditions[0,2].type", "Ready Last"),
            ("$.status['phase','ready']", "Running 2"),
            ("$..type", "Ready Other Last"),
            ("$.status.none[]", ""),
            ("$.status.conditions[?(@.type==\"Ready\")].status", "True"),
            ("$.status.conditions[?(@.at > 3)].type", "Other Last"),
            ("$.status.conditions[?(@.at<=5)].type", "Ready Other"),
            ("$.status.conditions[?(@.type != 'Ready')].at", "5 9"),
            ("$.status.conditions[?(@.missing)].at", ""),
        ] {
            assert_eq!(evaluate(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_is_missing_is_an_error_at_evaluation() {
        for path in ["$.status.unknown", "$.status.conditions[7].type", "$.status.phase[0]"] {
            JsonPath::parse(path).unwrap();
            assert!(evaluate(path).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_not_supported_is_an_error_at_parsing() {
        for path in ["$.a[", "$.a..", "$.a[b]", "$.a[1:2:0]", "$.a[1:2:3:4]", "$.a[?(@.b == c)]", "$.length()", "$.a b"]
        {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
