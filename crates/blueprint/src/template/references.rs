//! The parameters that a template refers to, without rendering it.

use super::ast::{Branch, Kind, Node, Operand, Pipeline};

/// The paths of all fields, in the order of the text. A path inside `with` or `range` may refer to another value than the
/// parameters.
pub(super) fn of(nodes: &[Node]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for node in nodes {
        node_paths(node, &mut found);
    }
    found
}

fn node_paths(node: &Node, found: &mut Vec<Vec<String>>) {
    match &node.kind {
        Kind::If(branch) | Kind::With(branch) | Kind::Range(branch) => branch_paths(branch, found),
        Kind::Action(pipeline) | Kind::Template { data: Some(pipeline), .. } => pipeline_paths(pipeline, found),
        Kind::Text(_) | Kind::Template { data: None, .. } | Kind::Break | Kind::Continue => {}
    }
}

fn branch_paths(branch: &Branch, found: &mut Vec<Vec<String>>) {
    pipeline_paths(&branch.pipeline, found);
    branch.body.iter().chain(&branch.otherwise).for_each(|node| node_paths(node, found));
}

fn pipeline_paths(pipeline: &Pipeline, found: &mut Vec<Vec<String>>) {
    let operands = pipeline.commands.iter().flat_map(|command| &command.operands);
    operands.for_each(|operand| operand_paths(operand, found));
}

fn operand_paths(operand: &Operand, found: &mut Vec<Vec<String>>) {
    match operand {
        Operand::Field(names) => found.push(names.clone()),
        Operand::Variable(name, names) if name == "$" && !names.is_empty() => found.push(names.clone()),
        Operand::Pipeline(inner) => pipeline_paths(inner, found),
        Operand::Chain(inner, _) => operand_paths(inner, found),
        _ => {}
    }
}
