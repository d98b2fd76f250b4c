//! Parser: tokens to a syntax tree.

use std::collections::BTreeMap;

use super::ast::{Branch, Kind, Node, Pipeline};
use super::functions;
use super::lex::{self, LexError, Lexeme, Token};
use super::limits;

mod operands;

/// The main template and the templates it defines.
#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    pub(super) body: Vec<Node>,
    pub(super) defined: BTreeMap<String, Vec<Node>>,
}

/// A syntax error, or a function that is not allowed.
#[derive(Debug)]
pub(super) enum ParseError {
    LexError(LexError),
    Refused { line: usize, function: String, cause: &'static str },
    TooMuch { line: usize, limit: &'static str },
}

impl From<LexError> for ParseError {
    fn from(wrong: LexError) -> Self {
        Self::LexError(wrong)
    }
}

/// Parses a source.
pub(super) fn parse(source: &str) -> Result<Parsed, ParseError> {
    if source.len() > limits::MAX_SOURCE_BYTES {
        return Err(ParseError::TooMuch { line: 1, limit: "1 MiB of source" });
    }
    let tokens = lex::tokens(source)?;
    let mut parser =
        Parser { tokens, at: 0, variables: vec!["$".to_owned()], loops: 0, depth: 0, parsed: Parsed::default() };
    let (body, end) = parser.list(true)?;
    if let Some(end) = end {
        return Err(wrong(parser.line(), format!("unexpected {{{{{}}}}}", end.word())));
    }
    let mut parsed = parser.parsed;
    parsed.body = body;
    Ok(parsed)
}

fn wrong(line: usize, message: impl Into<String>) -> ParseError {
    ParseError::LexError(LexError { line, message: message.into() })
}

/// The end of a list of nodes.
enum End {
    End,
    Else,
}

impl End {
    fn word(&self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Else => "else",
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    variables: Vec<String>,
    loops: usize,
    depth: usize,
    parsed: Parsed,
}

impl Parser {
    fn line(&self) -> usize {
        let token = self.tokens.get(self.at).or_else(|| self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    fn peek(&self) -> Option<&Lexeme> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// The next token after spaces, without consuming it.
    fn peek_solid(&mut self) -> Option<&Lexeme> {
        while self.peek() == Some(&Lexeme::Space) {
            self.at += 1;
        }
        self.peek()
    }

    fn next(&mut self) -> Option<Lexeme> {
        let token = self.tokens.get(self.at).map(|token| token.kind.clone());
        self.at += 1;
        token
    }

    fn next_solid(&mut self) -> Option<Lexeme> {
        self.peek_solid();
        self.next()
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth >= limits::MAX_SOURCE_NESTING {
            return Err(ParseError::TooMuch { line: self.line(), limit: "60 blocks or parentheses in each other" });
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    /// Parses nodes up to the end of the source or to `end` or `else`, which is consumed up to the keyword.
    fn list(&mut self, top: bool) -> Result<(Vec<Node>, Option<End>), ParseError> {
        let mut nodes = Vec::new();
        loop {
            let line = self.line();
            match self.next() {
                None if top => return Ok((nodes, None)),
                None => return Err(wrong(line, "unexpected EOF")),
                Some(Lexeme::Text(text)) => nodes.push(Node { line, kind: Kind::Text(text) }),
                Some(_) => match self.keyword() {
                    Some(word) if word == "end" => {
                        self.close("end")?;
                        return Ok((nodes, Some(End::End)));
                    }
                    Some(word) if word == "else" => return Ok((nodes, Some(End::Else))),
                    Some(word) if word == "define" => self.define(top)?,
                    Some(word) => nodes.push(Node { line, kind: self.control(&word)? }),
                    None => nodes.push(Node { line, kind: Kind::Action(self.action()?) }),
                },
            }
        }
    }

    /// Consumes the keyword at the start of an action.
    fn keyword(&mut self) -> Option<String> {
        const WORDS: [&str; 10] =
            ["block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"];
        match self.peek_solid() {
            Some(Lexeme::Word(word)) if WORDS.contains(&word.as_str()) => {
                let word = word.clone();
                self.at += 1;
                Some(word)
            }
            _ => None,
        }
    }

    fn control(&mut self, word: &str) -> Result<Kind, ParseError> {
        match word {
            "if" => Ok(Kind::If(self.branch("if")?)),
            "with" => Ok(Kind::With(self.branch("with")?)),
            "range" => {
                self.loops += 1;
                let branch = self.branch("range");
                Ok(Kind::Range(branch?))
            }
            "template" => self.template(),
            "block" => self.block(),
            _ => self.jump(word),
        }
    }

    fn jump(&mut self, word: &str) -> Result<Kind, ParseError> {
        self.close(word)?;
        if self.loops == 0 {
            return Err(wrong(self.line(), format!("{{{{{word}}}}} outside {{{{range}}}}")));
        }
        Ok(if word == "break" { Kind::Break } else { Kind::Continue })
    }

    fn close(&mut self, what: &str) -> Result<(), ParseError> {
        let line = self.line();
        match self.next_solid() {
            Some(Lexeme::Close) => Ok(()),
            None => Err(wrong(line, "unclosed action")),
            Some(_) => Err(wrong(line, format!("unexpected token in {what}"))),
        }
    }

    fn action(&mut self) -> Result<Pipeline, ParseError> {
        self.pipeline("command", &Lexeme::Close)
    }

    /// Pipeline, body and else of a control structure. `{{else if}}` is a nested `if` with the same end.
    fn branch(&mut self, word: &'static str) -> Result<Branch, ParseError> {
        self.deeper(|parser| {
            let variables = parser.variables.len();
            let pipeline = parser.pipeline(word, &Lexeme::Close)?;
            let (body, end) = parser.list(false)?;
            // Only the body is inside the loop: `break` in `else` belongs to an enclosing loop.
            if word == "range" {
                parser.loops -= 1;
            }
            let otherwise = match end {
                Some(End::Else) => parser.otherwise(word)?,
                _ => Vec::new(),
            };
            parser.variables.truncate(variables);
            Ok(Branch { pipeline, body, otherwise })
        })
    }

    fn otherwise(&mut self, word: &'static str) -> Result<Vec<Node>, ParseError> {
        let line = self.line();
        let chained = matches!(self.peek_solid(), Some(Lexeme::Word(next)) if next == word && word != "range");
        if chained {
            self.at += 1;
            let branch = self.branch(word)?;
            let kind = if word == "if" { Kind::If(branch) } else { Kind::With(branch) };
            return Ok(vec![Node { line, kind }]);
        }
        self.close("else")?;
        match self.list(false)? {
            (nodes, Some(End::End)) => Ok(nodes),
            _ => Err(wrong(self.line(), "expected end; found {{else}}")),
        }
    }

    fn name(&mut self, what: &str) -> Result<String, ParseError> {
        let line = self.line();
        match self.next_solid() {
            Some(Lexeme::String(bytes)) => {
                String::from_utf8(bytes).map_err(|_| wrong(line, format!("the name in {what} is not text")))
            }
            _ => Err(wrong(line, format!("expected a quoted name in {what}"))),
        }
    }

    fn template(&mut self) -> Result<Kind, ParseError> {
        let name = self.name("template clause")?;
        if self.peek_solid() == Some(&Lexeme::Close) {
            self.at += 1;
            return Ok(Kind::Template { name, data: None });
        }
        let data = self.pipeline("template clause", &Lexeme::Close)?;
        Ok(Kind::Template { name, data: Some(data) })
    }

    fn define(&mut self, top: bool) -> Result<(), ParseError> {
        if !top {
            return Err(wrong(self.line(), "unexpected {{define}}"));
        }
        let name = self.name("define clause")?;
        self.close("define clause")?;
        let body = self.body_of_its_own("define clause")?;
        self.add(name, body)
    }

    fn block(&mut self) -> Result<Kind, ParseError> {
        let name = self.name("block clause")?;
        let data = self.pipeline("block clause", &Lexeme::Close)?;
        let body = self.body_of_its_own("block clause")?;
        self.add(name.clone(), body)?;
        Ok(Kind::Template { name, data: Some(data) })
    }

    /// Parses a body without access to the enclosing variables and loops.
    fn body_of_its_own(&mut self, what: &str) -> Result<Vec<Node>, ParseError> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let loops = std::mem::take(&mut self.loops);
        let (body, end) = self.deeper(|parser| parser.list(false))?;
        self.variables = variables;
        self.loops = loops;
        match end {
            Some(End::End) => Ok(body),
            _ => Err(wrong(self.line(), format!("unexpected {{{{else}}}} in {what}"))),
        }
    }

    /// An empty template does not replace a non-empty one.
    fn add(&mut self, name: String, body: Vec<Node>) -> Result<(), ParseError> {
        match self.parsed.defined.get(&name) {
            Some(there) if !is_blank(there) && !is_blank(&body) => {
                Err(wrong(self.line(), format!("template: multiple definition of template {name:?}")))
            }
            Some(there) if !is_blank(there) => Ok(()),
            _ => {
                self.parsed.defined.insert(name, body);
                Ok(())
            }
        }
    }
}

/// Rejects unknown functions and those that templates may not call.
fn check_function(line: usize, name: &str) -> Result<(), ParseError> {
    if let Some(cause) = functions::refused(name) {
        return Err(ParseError::Refused { line, function: name.to_owned(), cause });
    }
    if functions::is_known(name) {
        return Ok(());
    }
    Err(wrong(line, format!("function {name:?} not defined")))
}

fn is_blank(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(&node.kind, Kind::Text(text) if text.trim().is_empty()))
}
