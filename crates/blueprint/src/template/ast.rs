//! The syntax tree of a template.

/// A node with its line.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text(String),
    Action(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { name: String, data: Option<Pipeline> },
    Break,
    Continue,
}

/// `if`, `with` or `range` with both branches.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) pipeline: Pipeline,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Commands; the result of each is the last argument of the next.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) line: usize,
    /// Variables that are set to the result.
    pub(super) variables: Vec<String>,
    /// Whether they exist already.
    pub(super) assigns: bool,
    pub(super) commands: Vec<Command>,
}

/// Operands; the first one may be a function.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) operands: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Dot,
    Nil,
    Bool(bool),
    /// Bytes, because an escape may name any.
    Text(std::sync::Arc<[u8]>),
    Number(Number),
    /// `.a.b`
    Field(Vec<String>),
    /// `$x.a.b`
    Variable(String, Vec<String>),
    Function(String),
    Pipeline(Box<Pipeline>),
    /// `(…).a.b`
    Chain(Box<Operand>, Vec<String>),
}

/// A number literal: its type depends on the context.
#[derive(Clone, Debug)]
pub(super) struct Number {
    pub(super) text: String,
    pub(super) int: Option<i64>,
    pub(super) float: Option<f64>,
    /// Has a decimal point or an exponent.
    pub(super) fractional: bool,
}
