//! All template functions: Go's and sprig's.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::eval_error::EvalError;
use super::scope::Scope;
use super::value::{Type, Value};
use super::{builtin, sprig};

/// The implementation of a function.
pub(super) type Run = fn(&mut Scope, &[Value]) -> Result<Value, EvalError>;

/// A function with its parameter types.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    /// One letter for each argument: `a`ny, `s`tring, `i`nt, `b`ool, `f`loat, `m`ap, `t`ime; the one before a `*` any
    /// number of times.
    pub(super) takes: &'static str,
    pub(super) run: Run,
}

impl Function {
    /// The type of an argument by its index.
    pub(super) fn wants(&self, at: usize) -> Type {
        let letters = self.takes.trim_end_matches('*').as_bytes();
        match letters.get(at).or(letters.last()) {
            Some(b's') => Type::Text,
            Some(b'i') => Type::Int,
            Some(b'b') => Type::Bool,
            Some(b'f') => Type::Float,
            Some(b'm') => Type::map(Type::Any),
            Some(b't') => Type::Time,
            _ => Type::Any,
        }
    }

    pub(super) fn check_count(&self, given: usize) -> Result<(), EvalError> {
        let letters = self.takes.trim_end_matches('*').len();
        let variadic = self.takes.ends_with('*');
        let fits = if variadic { given + 1 >= letters } else { given == letters };
        if fits {
            return Ok(());
        }
        let want = if variadic { format!("at least {}", letters - 1) } else { letters.to_string() };
        Err(EvalError::new(format!("wrong number of args for {}: want {want} got {given}", self.name)))
    }
}

/// All functions by name. sprig's functions override Go's, as in Kanister.
static BY_NAME: LazyLock<HashMap<&'static str, &'static Function>> = LazyLock::new(|| {
    let sprig = sprig::FUNCTIONS.iter().flat_map(|group| group.iter());
    builtin::FUNCTIONS.iter().chain(sprig).map(|function| (function.name, function)).collect()
});

/// Finds a function by name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    BY_NAME.get(name).copied()
}

/// Whether the function exists.
pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// Why a function of Kanister is not supported; `None` if it is supported or unknown.
pub(super) fn refused(name: &str) -> Option<&'static str> {
    match name {
        "env" | "expandenv" => Some("a template must not read the environment of the controller"),
        "getHostByName" => Some("a template must not use the network of the controller"),
        "derivePassword" => Some("Kanister itself does not allow it"),
        "genPrivateKey" | "genCA" | "genSelfSignedCert" | "genSignedCert" | "buildCustomCert" => {
            Some("keys and certificates are not made in templates here")
        }
        "encryptAES" | "decryptAES" => Some("encryption in templates is not supported"),
        "call" => Some("there are no function values to call"),
        _ => None,
    }
}
