//! Lexer: source to tokens.

use super::quote;

/// A token with its line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Lexeme,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lexeme {
    Text(String),
    Open,
    Close,
    Space,
    Pipe,
    Declare,
    Assign,
    Comma,
    LeftParen,
    RightParen,
    Dot,
    Field(String),
    Variable(String),
    Word(String),
    String(Vec<u8>),
    Number(String),
}

/// A lexical error with its line.
#[derive(Debug)]
pub(super) struct LexError {
    pub(super) line: usize,
    pub(super) message: String,
}

/// Tokenizes a template.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, LexError> {
    let mut lexer = Lexer { rest: source, line: 1, tokens: Vec::new(), parens: 0 };
    lexer.outside()?;
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
    parens: usize,
}

impl<'a> Lexer<'a> {
    fn wrong<T>(&self, message: impl Into<String>) -> Result<T, LexError> {
        Err(LexError { line: self.line, message: message.into() })
    }

    fn push(&mut self, kind: Lexeme) {
        self.tokens.push(Token { line: self.line, kind });
    }

    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.line += taken.bytes().filter(|byte| *byte == b'\n').count();
        taken
    }

    /// Alternates between text and actions.
    fn outside(&mut self) -> Result<(), LexError> {
        let mut trims = false;
        loop {
            let end = self.rest.find("{{").unwrap_or(self.rest.len());
            let last = end == self.rest.len();
            let before = &self.rest[..end];
            let cut =
                if !last && opens_with_trim(&self.rest[end..]) { before.trim_end_matches(is_space) } else { before };
            let kept = if trims { cut.trim_start_matches(is_space) } else { cut };
            if !kept.is_empty() {
                self.push(Lexeme::Text(kept.to_owned()));
            }
            self.skip(end);
            if last {
                return Ok(());
            }
            trims = self.action()?;
        }
    }

    /// One `{{ … }}`; returns whether it trims the text after it.
    fn action(&mut self) -> Result<bool, LexError> {
        // The space is part of the marker: a comment follows directly.
        self.skip(if opens_with_trim(self.rest) { 4 } else { 2 });
        if self.rest.starts_with("/*") {
            return self.comment();
        }
        self.push(Lexeme::Open);
        self.parens = 0;
        loop {
            if let Some((length, trims)) = closes(self.rest) {
                if self.parens > 0 {
                    return self.wrong("unclosed left paren");
                }
                self.skip(length);
                self.push(Lexeme::Close);
                return Ok(trims);
            }
            self.inside()?;
        }
    }

    fn comment(&mut self) -> Result<bool, LexError> {
        let Some(end) = self.rest.find("*/") else { return self.wrong("unclosed comment") };
        self.skip(end + 2);
        let Some((length, trims)) = closes(self.rest) else {
            return self.wrong("comment ends before closing delimiter");
        };
        self.skip(length);
        Ok(trims)
    }

    /// One token of an action.
    fn inside(&mut self) -> Result<(), LexError> {
        let Some(first) = self.rest.chars().next() else { return self.wrong("unclosed action") };
        match first {
            _ if is_space(first) => self.space(),
            '=' => self.single(Lexeme::Assign),
            ':' if self.rest.starts_with(":=") => {
                self.skip(2);
                self.push(Lexeme::Declare);
            }
            ':' => return self.wrong("expected :="),
            '|' => self.single(Lexeme::Pipe),
            ',' => self.single(Lexeme::Comma),
            '"' => return self.quoted(),
            '`' => return self.raw(),
            '\'' => return self.character(),
            '$' => return self.variable(),
            '(' => {
                self.parens += 1;
                self.single(Lexeme::LeftParen);
            }
            ')' => {
                let Some(left) = self.parens.checked_sub(1) else { return self.wrong("unexpected right paren") };
                self.parens = left;
                self.single(Lexeme::RightParen);
            }
            '.' if !self.rest[1..].starts_with(|next: char| next.is_ascii_digit()) => return self.field(),
            '.' | '+' | '-' | '0'..='9' => return self.number(),
            _ if is_word(first) => return self.word(),
            _ => return self.wrong(format!("unexpected {first:?} in an action")),
        }
        Ok(())
    }

    fn single(&mut self, kind: Lexeme) {
        self.push(kind);
        self.skip(1);
    }

    /// Skips spaces, except the one of a trim marker.
    fn space(&mut self) {
        let mut length = self.rest.len() - self.rest.trim_start_matches(is_space).len();
        if self.rest[length..].starts_with("-}}") {
            length -= 1;
        }
        if length > 0 {
            self.push(Lexeme::Space);
            self.skip(length);
        }
    }

    fn quoted(&mut self) -> Result<(), LexError> {
        let Some(length) = closing_quote(self.rest, b'"') else { return self.wrong("unterminated quoted string") };
        let inner = &self.rest[1..length - 1];
        match quote::unescape(inner, '"') {
            Some(bytes) => self.push(Lexeme::String(bytes)),
            None => return self.wrong("invalid escape in a quoted string"),
        }
        self.skip(length);
        Ok(())
    }

    fn raw(&mut self) -> Result<(), LexError> {
        let Some(end) = self.rest[1..].find('`') else { return self.wrong("unterminated raw quoted string") };
        let inner = self.rest[1..=end].replace('\r', "");
        self.push(Lexeme::String(inner.into_bytes()));
        self.skip(end + 2);
        Ok(())
    }

    fn character(&mut self) -> Result<(), LexError> {
        let Some(length) = closing_quote(self.rest, b'\'') else {
            return self.wrong("unterminated character constant");
        };
        self.push(Lexeme::Number(self.rest[..length].to_owned()));
        self.skip(length);
        Ok(())
    }

    fn variable(&mut self) -> Result<(), LexError> {
        let length = 1 + word_length(&self.rest[1..]);
        self.push(Lexeme::Variable(self.rest[..length].to_owned()));
        self.skip(length);
        self.terminator()
    }

    fn field(&mut self) -> Result<(), LexError> {
        let length = word_length(&self.rest[1..]);
        let name = &self.rest[1..=length];
        self.push(if name.is_empty() { Lexeme::Dot } else { Lexeme::Field(name.to_owned()) });
        self.skip(length + 1);
        self.terminator()
    }

    fn word(&mut self) -> Result<(), LexError> {
        let length = word_length(self.rest);
        self.push(Lexeme::Word(self.rest[..length].to_owned()));
        self.skip(length);
        self.terminator()
    }

    fn number(&mut self) -> Result<(), LexError> {
        let length = number_length(self.rest);
        let text = self.rest[..length].to_owned();
        if length == 0 || self.rest[length..].starts_with(|next| is_word(next) || next == '+' || next == '-') {
            return self.wrong("bad number syntax");
        }
        self.push(Lexeme::Number(text));
        self.skip(length);
        Ok(())
    }

    /// Whether a name may end here.
    fn terminator(&self) -> Result<(), LexError> {
        let ends = |next: char| is_space(next) || matches!(next, '.' | ',' | '|' | ':' | ')' | '(');
        match self.rest.chars().next() {
            None => Ok(()),
            Some(next) if ends(next) || closes(self.rest).is_some() => Ok(()),
            Some(next) => self.wrong(format!("bad character {next:?}")),
        }
    }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn word_length(text: &str) -> usize {
    text.find(|character| !is_word(character)).unwrap_or(text.len())
}

fn opens_with_trim(text: &str) -> bool {
    text.strip_prefix("{{-").is_some_and(|rest| rest.starts_with(is_space))
}

/// The length of a closing delimiter, and whether it trims.
fn closes(text: &str) -> Option<(usize, bool)> {
    if text.starts_with("}}") {
        return Some((2, false));
    }
    (text.starts_with(is_space) && text[1..].starts_with("-}}")).then_some((4, true))
}

/// The length of a quoted string with its quotes; it must end on the same line.
fn closing_quote(text: &str, quote: u8) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'\n' => return None,
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => return None,
            b'\\' => at += 2,
            byte if *byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let run = |from: usize, set: &[u8]| from + bytes[from..].iter().take_while(|byte| set.contains(byte)).count();
    let mut at = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let (digits, hex) = match bytes.get(at..at + 2) {
        Some([b'0', b'x' | b'X']) => (&b"0123456789abcdefABCDEF_"[..], true),
        Some([b'0', b'o' | b'O']) => (&b"01234567_"[..], false),
        Some([b'0', b'b' | b'B']) => (&b"01_"[..], false),
        _ => (&b"0123456789_"[..], false),
    };
    let decimal = digits == b"0123456789_";
    if !decimal {
        at += 2;
    }
    at = run(at, digits);
    if bytes.get(at) == Some(&b'.') {
        at = run(at + 1, digits);
    }
    let exponent: &[u8] = if hex { b"pP" } else { b"eE" };
    if (decimal || hex) && bytes.get(at).is_some_and(|byte| exponent.contains(byte)) {
        let signed = at + 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        at = run(signed, b"0123456789_");
    }
    at
}
