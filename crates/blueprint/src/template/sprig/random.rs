//! Random functions.

use rand::Rng;
use rand::seq::SliceRandom;

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::Value;
use super::{int, text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "randAlphaNum",
        takes: "i",
        run: |scope, values| drawn(scope, &values[0], |byte| byte.is_ascii_alphanumeric()),
    },
    Function {
        name: "randAlpha",
        takes: "i",
        run: |scope, values| drawn(scope, &values[0], |byte| byte.is_ascii_alphabetic()),
    },
    Function { name: "randAscii", takes: "i", run: |scope, values| drawn(scope, &values[0], |_| true) },
    Function {
        name: "randNumeric",
        takes: "i",
        run: |scope, values| drawn(scope, &values[0], |byte| byte.is_ascii_digit()),
    },
    Function { name: "shuffle", takes: "s", run: shuffle },
    Function { name: "uuidv4", takes: "", run: |scope, _| scope.text(uuid::Uuid::new_v4().to_string()) },
];

fn drawn(scope: &mut Scope, count: &Value, from: fn(u8) -> bool) -> Result<Value, EvalError> {
    let count = usize::try_from(int(count)).unwrap_or_default();
    Scope::room(count)?;
    let set: Vec<u8> = (b' '..=b'~').filter(|byte| from(*byte)).collect();
    let mut random = rand::rng();
    let text: Vec<u8> = (0..count).map(|_| set[random.random_range(0..set.len())]).collect();
    scope.text(text)
}

fn shuffle(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut characters: Vec<char> = text(&values[0]).chars().collect();
    characters.shuffle(&mut rand::rng());
    scope.text(characters.into_iter().collect::<String>())
}
