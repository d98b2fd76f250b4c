//! Tests of the decisions, as tables.

mod strategic;
