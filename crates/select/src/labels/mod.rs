//! Label selectors: as a field of a spec, as text, and compiled.

mod parse;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use parse::parse;

use crate::{Error, names};

/// A label selector in a spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Required labels and their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Requirements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<Expression>>,
}

/// A requirement of a [`LabelSelector`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expression {
    /// The label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// For `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl LabelSelector {
    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && self.match_expressions.as_ref().is_none_or(Vec::is_empty)
    }
}

/// The labels of an object, of any map type.
pub trait Labels {
    /// The value of a label.
    fn get(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn get(&self, key: &str) -> Option<&str> {
        BTreeMap::get(self, key).map(String::as_str)
    }
}

impl Labels for serde_json::Map<String, serde_json::Value> {
    fn get(&self, key: &str) -> Option<&str> {
        serde_json::Map::get(self, key).and_then(serde_json::Value::as_str)
    }
}

impl Labels for serde_json::Value {
    fn get(&self, key: &str) -> Option<&str> {
        self.as_object().and_then(|labels| Labels::get(labels, key))
    }
}

impl Labels for () {
    fn get(&self, _key: &str) -> Option<&str> {
        None
    }
}

impl<L: Labels> Labels for Option<L> {
    fn get(&self, key: &str) -> Option<&str> {
        self.as_ref().and_then(|labels| labels.get(key))
    }
}

impl<L: Labels + ?Sized> Labels for &L {
    fn get(&self, key: &str) -> Option<&str> {
        (**self).get(key)
    }
}

/// A compiled selector: all requirements must match. An empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl Selector {
    /// Compiles a selector of a spec.
    pub fn new(selector: &LabelSelector) -> Result<Self, Error> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Operator::In(vec![value.clone()]))?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            requirements.push(Requirement::new(&expression.key, expression.operator()?)?);
        }
        Ok(Self { requirements })
    }

    /// Compiles a selector from text, as in a query; `>` and `<` are supported too.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self { requirements: parse::parse_requirements(text)? })
    }

    /// Whether labels match.
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }

    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    pub(crate) fn new(key: &str, operator: Operator) -> Result<Self, Error> {
        names::qualified_name(key).map_err(|problem| selector_error(key, problem))?;
        if let Operator::In(values) | Operator::NotIn(values) = &operator {
            for value in values {
                names::label_value(value).map_err(|problem| selector_error(value, problem))?;
            }
        }
        Ok(Self { key: key.to_owned(), operator })
    }

    /// An absent label matches `NotIn`.
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|expected| expected == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|excluded| excluded != value)),
            Operator::GreaterThan(limit) => number().is_some_and(|number| number > *limit),
            Operator::LessThan(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl Expression {
    fn operator(&self) -> Result<Operator, Error> {
        let error = |problem: &str| selector_error(&format!("{} {}", self.key, self.operator), problem);
        let values = self.values.clone().unwrap_or_default();
        match (self.operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Operator::In(values)),
            ("NotIn", false) => Ok(Operator::NotIn(values)),
            ("In" | "NotIn", true) => Err(error("at least one value is required")),
            ("Exists", true) => Ok(Operator::Exists),
            ("DoesNotExist", true) => Ok(Operator::DoesNotExist),
            ("Exists" | "DoesNotExist", false) => Err(error("values are not allowed")),
            _ => Err(error("the operator must be In, NotIn, Exists or DoesNotExist")),
        }
    }
}

fn selector_error(part: &str, problem: &str) -> Error {
    Error::Selector { part: part.to_owned(), problem: problem.to_owned() }
}
