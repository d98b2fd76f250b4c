//! Tests of the decisions, as tables.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "helpers of tests may fail as tests do, and take literals"
)]

mod includes;
mod labels;
mod modifiers;
mod order;
mod policies;
mod selection;
mod strategic;
