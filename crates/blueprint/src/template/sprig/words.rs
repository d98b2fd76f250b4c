//! Case conversion and word wrapping.

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::Value;
use super::{bytes, int, text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "title", takes: "s", run: |scope, values| scope.text(title(&text(&values[0]))) },
    Function { name: "untitle", takes: "s", run: |scope, values| scope.text(untitle(&text(&values[0]))) },
    Function {
        name: "nospace",
        takes: "s",
        run: |scope, values| scope.text(text(&values[0]).replace(char::is_whitespace, "")),
    },
    Function { name: "initials", takes: "s", run: |scope, values| scope.text(initials(&text(&values[0]))) },
    Function { name: "swapcase", takes: "s", run: |scope, values| scope.text(swapped(&text(&values[0]))) },
    Function { name: "snakecase", takes: "s", run: |scope, values| scope.text(connected(&text(&values[0]), '_')) },
    Function { name: "kebabcase", takes: "s", run: |scope, values| scope.text(connected(&text(&values[0]), '-')) },
    Function { name: "camelcase", takes: "s", run: |scope, values| scope.text(camel(&text(&values[0]))) },
    Function {
        name: "wrap",
        takes: "is",
        run: |scope, values| wrap(scope, int(&values[0]), b"\n", bytes(&values[1]), false),
    },
    Function { name: "wrapWith", takes: "iss", run: wrap_with },
];

/// Changes the first letter of every word.
fn each_first(text: &str, begins: impl Fn(char) -> bool, change: impl Fn(char) -> char) -> String {
    let mut before = ' ';
    text.chars()
        .map(|character| {
            let changed = if begins(before) { change(character) } else { character };
            before = character;
            changed
        })
        .collect()
}

fn upper(character: char) -> char {
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => character,
    }
}

fn lower(character: char) -> char {
    let mut lower = character.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => character,
    }
}

/// Go's word boundaries in `strings.Title`: ASCII punctuation except the underscore, and spaces.
fn title(text: &str) -> String {
    let separates = |before: char| {
        if before.is_ascii() {
            !(before.is_ascii_alphanumeric() || before == '_')
        } else {
            !before.is_alphanumeric() && before.is_whitespace()
        }
    };
    each_first(text, separates, upper)
}

fn untitle(text: &str) -> String {
    each_first(text, char::is_whitespace, lower)
}

fn initials(text: &str) -> String {
    let mut gap = true;
    let mut letters = String::new();
    for character in text.chars() {
        if character.is_whitespace() {
            gap = true;
        } else if std::mem::take(&mut gap) {
            letters.push(character);
        }
    }
    letters
}

fn swapped(text: &str) -> String {
    let swap = |character: char| if character.is_uppercase() { lower(character) } else { upper(character) };
    text.chars().map(swap).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Number,
    /// Starts with a capital letter.
    Capital,
    Small,
    Connector,
    Punctuation,
    Other,
}

fn is_connector(character: char) -> bool {
    matches!(character, '-' | '_') || character.is_whitespace()
}

fn is_letter(character: char) -> bool {
    character.is_alphabetic()
}

fn sort(character: char) -> Sort {
    match character {
        _ if is_connector(character) => Sort::Connector,
        _ if character.is_ascii_punctuation() && !"$+<=>^`|~".contains(character) => Sort::Punctuation,
        _ if character.is_uppercase() => Sort::Capital,
        _ if is_letter(character) => Sort::Small,
        _ if character.is_numeric() => Sort::Number,
        _ => Sort::Other,
    }
}

/// The words of an identifier: `HTTPServer` is `HTTP` and `Server`.
fn words(text: &str) -> Vec<(Sort, Vec<char>)> {
    let characters: Vec<char> = text.chars().collect();
    let mut words = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let sort_here = sort(characters[at]);
        let end = at + word_length(&characters[at..], sort_here);
        words.push((sort_here, characters[at..end].to_vec()));
        at = end;
    }
    words
}

fn word_length(characters: &[char], of: Sort) -> usize {
    let run = |from: usize, wanted: Sort| {
        from + characters[from..].iter().take_while(|character| sort(**character) == wanted).count()
    };
    if of != Sort::Capital {
        return run(0, of);
    }
    match characters.get(1).map(|second| sort(*second)) {
        Some(Sort::Small) => run(1, Sort::Small),
        Some(Sort::Capital) => {
            let end = run(0, Sort::Capital);
            // The last capital letter starts the next word.
            if characters.get(end).is_some_and(|next| sort(*next) == Sort::Small) { end - 1 } else { end }
        }
        _ => 1,
    }
}

/// Lower case words joined by a connector; a number belongs to the letters after it.
fn connected(text: &str, connector: char) -> String {
    let words = words(text);
    let mut out = String::new();
    for (at, (sort, word)) in words.iter().enumerate() {
        match sort {
            Sort::Connector => out.extend(word.iter().map(|_| connector)),
            _ => out.extend(word.iter().copied().map(lower)),
        }
        let Some((next, _)) = words.get(at + 1) else { break };
        if joins(*sort, *next, words.get(at + 2).map(|(sort, _)| *sort)) {
            out.push(connector);
        }
    }
    out
}

fn joins(sort: Sort, next: Sort, after: Option<Sort>) -> bool {
    let separate = |sort: Sort| matches!(sort, Sort::Connector | Sort::Punctuation);
    match (sort, next) {
        _ if separate(sort) || separate(next) => false,
        (Sort::Number, Sort::Small) => false,
        (_, Sort::Number) => after == Some(Sort::Small),
        _ => true,
    }
}

fn camel(text: &str) -> String {
    let leading: String = text.chars().take_while(|character| is_connector(*character)).collect();
    let mut out = leading.clone();
    let mut raise = true;
    let mut connectors = Vec::new();
    for character in text.chars().skip(leading.chars().count()) {
        if is_connector(character) {
            connectors.push(character);
            raise = true;
            continue;
        }
        // All but the last of several connectors are kept.
        out.extend(connectors.iter().skip(1));
        connectors.clear();
        out.push(if std::mem::take(&mut raise) { upper(character) } else { character });
    }
    out.extend(connectors);
    out
}

fn wrap_with(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let between = bytes(&values[1]);
    let between = if between.is_empty() { b"\n" } else { between };
    wrap(scope, int(&values[0]), between, bytes(&values[2]), true)
}

/// Wraps a line at spaces; words that are too long are split only if requested.
fn wrap(scope: &mut Scope, width: i64, between: &[u8], text: &[u8], cut: bool) -> Result<Value, EvalError> {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    Scope::room(text.len().saturating_mul(1 + between.len() / width.min(8)))?;
    let mut out = super::super::format::FormatBuffer::default();
    let mut rest = text;
    while rest.len() > width {
        scope.budget.steps(1)?;
        if rest[0] == b' ' {
            rest = &rest[1..];
            continue;
        }
        let space = rest[..=width].iter().rposition(|byte| *byte == b' ');
        let later = || rest[width..].iter().position(|byte| *byte == b' ').map(|at| at + width);
        let (end, skip) = match space {
            Some(end) => (end, 1),
            None if cut => (width, 0),
            None => match later() {
                Some(end) => (end, 1),
                None => (rest.len(), 0),
            },
        };
        out.push(&rest[..end])?;
        if end < rest.len() {
            out.push(between)?;
        }
        rest = &rest[end + skip..];
    }
    out.push(rest)?;
    scope.text(out.bytes)
}
