//! Pipelines, commands and operands.

use super::super::ast::{Command, Operand, Pipeline};
use super::super::lex::Lexeme;
use super::super::number;
use super::{ParseError, Parser, check_function, wrong};

impl Parser {
    /// A pipeline with its variables, up to and including `end`.
    pub(super) fn pipeline(&mut self, context: &'static str, end: &Lexeme) -> Result<Pipeline, ParseError> {
        self.deeper(|parser| {
            parser.peek_solid();
            let line = parser.line();
            let (variables, assigns) = parser.declarations(context)?;
            let commands = parser.commands(context, end)?;
            check(line, context, &commands)?;
            Ok(Pipeline { line, variables, assigns, commands })
        })
    }

    fn commands(&mut self, context: &str, end: &Lexeme) -> Result<Vec<Command>, ParseError> {
        let mut commands = Vec::new();
        loop {
            let line = self.line();
            match self.peek_solid() {
                Some(found) if found == end => {
                    self.at += 1;
                    return Ok(commands);
                }
                None => return Err(wrong(line, "unclosed action")),
                Some(Lexeme::Open | Lexeme::Close | Lexeme::Comma | Lexeme::Declare | Lexeme::Assign) => {
                    return Err(wrong(line, format!("unexpected token in {context}")));
                }
                Some(_) => commands.push(self.command()?),
            }
        }
    }

    /// `$x :=`, `$x =`, or for a range `$i, $x :=`.
    fn declarations(&mut self, context: &str) -> Result<(Vec<String>, bool), ParseError> {
        let start = self.at;
        let mut variables = Vec::new();
        while let Some(Lexeme::Variable(name)) = self.peek_solid() {
            let name = name.clone();
            self.at += 1;
            variables.push(name);
            match self.peek_solid() {
                Some(Lexeme::Declare) => {
                    self.at += 1;
                    self.variables.extend(variables.iter().cloned());
                    return Ok((variables, false));
                }
                Some(Lexeme::Assign) => {
                    self.at += 1;
                    return Ok((variables, true));
                }
                Some(Lexeme::Comma) if context == "range" && variables.len() == 1 => self.at += 1,
                Some(Lexeme::Comma) => return Err(wrong(self.line(), format!("too many declarations in {context}"))),
                _ => break,
            }
        }
        if variables.len() > 1 {
            return Err(wrong(self.line(), "range can only initialize variables"));
        }
        self.at = start;
        Ok((Vec::new(), false))
    }

    /// Space-separated operands, up to a pipe or the end.
    fn command(&mut self) -> Result<Command, ParseError> {
        let line = self.line();
        let mut operands = Vec::new();
        loop {
            self.peek_solid();
            if let Some(operand) = self.operand()? {
                operands.push(operand);
            }
            let line = self.line();
            match self.peek() {
                Some(Lexeme::Space) => {}
                Some(Lexeme::Pipe) => {
                    self.at += 1;
                    break;
                }
                Some(Lexeme::Close | Lexeme::RightParen) => break,
                None => return Err(wrong(line, "unclosed action")),
                Some(_) => return Err(wrong(line, "unexpected token in operand")),
            }
        }
        if operands.is_empty() {
            return Err(wrong(line, "empty command"));
        }
        Ok(Command { line, operands })
    }

    /// A term with the fields that follow it.
    fn operand(&mut self) -> Result<Option<Operand>, ParseError> {
        let line = self.line();
        let Some(term) = self.term()? else { return Ok(None) };
        let fields = self.fields();
        if fields.is_empty() {
            return Ok(Some(term));
        }
        Ok(Some(match term {
            Operand::Field(mut names) => {
                names.extend(fields);
                Operand::Field(names)
            }
            Operand::Variable(name, mut names) => {
                names.extend(fields);
                Operand::Variable(name, names)
            }
            Operand::Bool(_) | Operand::Text(_) | Operand::Number(_) | Operand::Nil | Operand::Dot => {
                return Err(wrong(line, "unexpected . after term"));
            }
            other => Operand::Chain(Box::new(other), fields),
        }))
    }

    fn fields(&mut self) -> Vec<String> {
        let mut fields = Vec::new();
        while let Some(Lexeme::Field(name)) = self.peek() {
            fields.push(name.clone());
            self.at += 1;
        }
        fields
    }

    fn term(&mut self) -> Result<Option<Operand>, ParseError> {
        let line = self.line();
        let term = match self.peek() {
            Some(Lexeme::Dot) => Operand::Dot,
            Some(Lexeme::Field(name)) => Operand::Field(vec![name.clone()]),
            Some(Lexeme::Variable(name)) => {
                if !self.variables.contains(name) {
                    return Err(wrong(line, format!("undefined variable {name:?}")));
                }
                Operand::Variable(name.clone(), Vec::new())
            }
            Some(Lexeme::String(bytes)) => Operand::Text(bytes.clone().into()),
            Some(Lexeme::Number(text)) => {
                let found = number::parse(text).ok_or_else(|| wrong(line, format!("bad number syntax: {text:?}")))?;
                Operand::Number(found)
            }
            Some(Lexeme::Word(name)) => word(line, name)?,
            Some(Lexeme::LeftParen) => {
                self.at += 1;
                let inner = self.pipeline("parenthesized pipeline", &Lexeme::RightParen)?;
                return Ok(Some(Operand::Pipeline(Box::new(inner))));
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(term))
    }
}

fn word(line: usize, word: &str) -> Result<Operand, ParseError> {
    match word {
        "true" => Ok(Operand::Bool(true)),
        "false" => Ok(Operand::Bool(false)),
        "nil" => Ok(Operand::Nil),
        "if" | "else" | "end" | "range" | "with" | "define" | "block" | "template" | "break" | "continue" => {
            Err(wrong(line, format!("unexpected <{word}> in operand")))
        }
        _ => {
            check_function(line, word)?;
            Ok(Operand::Function(word.to_owned()))
        }
    }
}

fn check(line: usize, context: &str, commands: &[Command]) -> Result<(), ParseError> {
    if commands.is_empty() {
        return Err(wrong(line, format!("missing value for {context}")));
    }
    for (at, command) in commands.iter().enumerate().skip(1) {
        let constant = matches!(
            command.operands.first(),
            Some(Operand::Bool(_) | Operand::Dot | Operand::Nil | Operand::Number(_) | Operand::Text(_))
        );
        if constant {
            return Err(wrong(line, format!("non executable command in pipeline stage {}", at + 1)));
        }
    }
    Ok(())
}
