//! Semantic versions.

use std::rc::Rc;

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::Value;
use super::super::version::{Version, meets};
use super::text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "semver",
        takes: "s",
        run: |_, values| Ok(Value::Version(Rc::new(Version::parse(&text(&values[0]))?))),
    },
    Function { name: "semverCompare", takes: "ss", run: compare },
];

fn compare(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Bool(meets(&text(&values[0]), &Version::parse(&text(&values[1]))?)?))
}
