//! The shared state of the functions of one rendering: limits and maps.

use std::rc::Rc;

use super::eval_error::EvalError;
use super::limits::Budget;
use super::value::{List, Map, Type, Value};

/// Maximum nesting of lists, which is the recursion depth of a drop.
const MAX_LIST_DEPTH: usize = 1000;

/// The state of one rendering.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) budget: Budget,
    maps: Vec<Map>,
}

impl Scope {
    pub(super) fn new() -> Self {
        Self { budget: Budget::new(), maps: Vec::new() }
    }

    /// Creates a map. It is tracked, so that cyclic maps are freed at the end.
    pub(super) fn map(&mut self, of: Type) -> Map {
        let map = Map::empty(of);
        self.maps.push(map.clone());
        map
    }

    pub(super) fn list(&mut self, items: Vec<Value>) -> Result<Value, EvalError> {
        self.list_of(Type::Any, items)
    }

    pub(super) fn list_of(&mut self, of: Type, items: Vec<Value>) -> Result<Value, EvalError> {
        self.budget.make(items.len() * size_of::<Value>())?;
        let below = items.iter().map(|item| if let Value::List(list) = item { list.depth } else { 0 });
        let depth = 1 + below.max().unwrap_or_default();
        if depth > MAX_LIST_DEPTH {
            return Err(EvalError::too_much("1000 lists in each other"));
        }
        Ok(Value::List(List { of: Rc::new(of), items: Rc::new(items), depth }))
    }

    /// Strings, as Go's `[]string`.
    pub(super) fn texts(&mut self, texts: Vec<Vec<u8>>) -> Result<Value, EvalError> {
        let items = texts.into_iter().map(|text| self.text(text)).collect::<Result<Vec<_>, _>>()?;
        self.list_of(Type::Text, items)
    }

    pub(super) fn text(&mut self, text: impl Into<Vec<u8>>) -> Result<Value, EvalError> {
        let text = text.into();
        self.budget.make(text.len())?;
        Ok(Value::Text(Rc::from(text)))
    }

    /// Checks the size of a value before it is created.
    pub(super) fn room(bytes: usize) -> Result<(), EvalError> {
        if bytes > super::limits::MAX_OUTPUT_BYTES {
            return Err(EvalError::too_much("8 MiB in one value"));
        }
        Ok(())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        for map in &self.maps {
            map.clear();
        }
    }
}
