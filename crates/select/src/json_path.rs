//! The subset of JSONPath that printer columns use: fields, indexes, `[*]` and `[?(@.field=="value")]`.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    All,
    Where { field: String, value: String },
}

/// A parsed path. An unsupported path matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Parses a path, with or without braces.
    pub fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim().trim_start_matches('{').trim_end_matches('}');
        while !rest.is_empty() {
            let Some((step, rest_of_path)) = next_step(rest) else { return Self::default() };
            steps.extend(step);
            rest = rest_of_path;
        }
        Self(steps)
    }

    /// All values that the path matches.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.0
            .iter()
            .fold(vec![object], |values, step| values.into_iter().flat_map(|value| step.apply(value)).collect())
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let items = || value.as_array().map_or(&[][..], Vec::as_slice).iter();
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => value.get(index).into_iter().collect(),
            Self::All => items().collect(),
            Self::Where { field, value } => items().filter(|item| item[field].as_str() == Some(value)).collect(),
        }
    }
}

fn next_step(text: &str) -> Option<(Option<Step>, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, rest_of_path) = rest.split_once(']')?;
        return Some((Some(bracket(inner)?), rest_of_path));
    }
    let rest = text.strip_prefix('.').unwrap_or(text);
    let (name, rest_of_path) = field_name(rest);
    Some(((!name.is_empty()).then_some(Step::Field(name)), rest_of_path))
}

/// A dot in a name is written `\.`
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => name.push(character),
        }
    }
    (name, "")
}

fn bracket(inner: &str) -> Option<Step> {
    let unquote = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(test) = inner.strip_prefix("?(@.") {
        let (field, value) = test.strip_suffix(')')?.split_once("==")?;
        return Some(Step::Where { field: field.trim().to_owned(), value: unquote(value) });
    }
    if inner.starts_with(['"', '\'']) {
        return Some(Step::Field(unquote(inner)));
    }
    inner.parse().ok().map(Step::Index)
}
