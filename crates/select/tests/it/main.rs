//! Tests of the decisions, as tables.

mod includes;
mod labels;
mod modifiers;
mod order;
mod policies;
mod selection;
mod strategic;
