//! Label selectors: as objects have them, as people write them, and compiled.

mod parse;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use parse::parse;

use crate::{Error, names};

/// A selector as specs have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Requirements that must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<Expression>>,
}

/// A requirement as specs have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// For `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl LabelSelector {
    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && self.match_expressions.as_ref().is_none_or(Vec::is_empty)
    }
}

/// The labels of an object, in whatever shape they are at hand.
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

/// A compiled selector: all requirements must hold. The empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Compiles a selector of a spec.
    pub fn new(selector: &LabelSelector) -> Result<Self, Error> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Test::In(vec![value.clone()]))?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            requirements.push(Requirement::new(&expression.key, expression.test()?)?);
        }
        Ok(Self { requirements })
    }

    /// Compiles a selector from its text, as a query has it; that one also knows `>` and `<`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self { requirements: parse::requirements(text)? })
    }

    /// Whether labels satisfy it.
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels.get(&requirement.key)))
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    pub(crate) fn new(key: &str, test: Test) -> Result<Self, Error> {
        names::qualified_name(key).map_err(|problem| invalid(key, problem))?;
        if let Test::In(values) | Test::NotIn(values) = &test {
            for value in values {
                names::label_value(value).map_err(|problem| invalid(value, problem))?;
            }
        }
        Ok(Self { key: key.to_owned(), test })
    }

    /// What is not there satisfies "not one of".
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value)),
            Test::Greater(limit) => number().is_some_and(|number| number > *limit),
            Test::Less(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl Expression {
    fn test(&self) -> Result<Test, Error> {
        let bad = |problem: &str| invalid(&format!("{} {}", self.key, self.operator), problem);
        let values = self.values.clone().unwrap_or_default();
        match (self.operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Test::In(values)),
            ("NotIn", false) => Ok(Test::NotIn(values)),
            ("In" | "NotIn", true) => Err(bad("it needs at least one value")),
            ("Exists", true) => Ok(Test::Exists),
            ("DoesNotExist", true) => Ok(Test::Absent),
            ("Exists" | "DoesNotExist", false) => Err(bad("it takes no values")),
            _ => Err(bad("the operator must be In, NotIn, Exists or DoesNotExist")),
        }
    }
}

fn invalid(part: &str, problem: &str) -> Error {
    Error::Selector { part: part.to_owned(), problem: problem.to_owned() }
}
