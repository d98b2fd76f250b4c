//! What the functions of one rendering share: the limits, and every map that was made.

use std::rc::Rc;

use super::fault::Fault;
use super::limits::Budget;
use super::value::{List, Map, Type, Value};

/// Lists in each other; dropping a list goes down that far.
const DEEPEST_LIST: usize = 1000;

/// The surroundings of one rendering.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) budget: Budget,
    maps: Vec<Map>,
}

impl Scope {
    pub(super) fn new() -> Self {
        Self { budget: Budget::new(), maps: Vec::new() }
    }

    /// A new map. It is remembered, so that maps which hold each other are freed in the end.
    pub(super) fn map(&mut self, of: Type) -> Map {
        let map = Map::empty(of);
        self.maps.push(map.clone());
        map
    }

    pub(super) fn list(&mut self, items: Vec<Value>) -> Result<Value, Fault> {
        self.list_of(Type::Any, items)
    }

    pub(super) fn list_of(&mut self, of: Type, items: Vec<Value>) -> Result<Value, Fault> {
        self.budget.make(items.len() * size_of::<Value>())?;
        let below = items.iter().map(|item| if let Value::List(list) = item { list.depth } else { 0 });
        let depth = 1 + below.max().unwrap_or_default();
        if depth > DEEPEST_LIST {
            return Err(Fault::too_much("1000 lists in each other"));
        }
        Ok(Value::List(List { of: Rc::new(of), items: Rc::new(items), depth }))
    }

    /// Strings, as Go's `[]string`.
    pub(super) fn texts(&mut self, texts: Vec<Vec<u8>>) -> Result<Value, Fault> {
        let items = texts.into_iter().map(|text| self.text(text)).collect::<Result<Vec<_>, _>>()?;
        self.list_of(Type::Text, items)
    }

    pub(super) fn text(&mut self, text: impl Into<Vec<u8>>) -> Result<Value, Fault> {
        let text = text.into();
        self.budget.make(text.len())?;
        Ok(Value::Text(Rc::from(text)))
    }

    /// Refuses what would become too large, before it is made.
    pub(super) fn room(bytes: usize) -> Result<(), Fault> {
        if bytes > super::limits::OUTPUT {
            return Err(Fault::too_much("8 MiB in one value"));
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
