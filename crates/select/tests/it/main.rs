//! Tests of selection, order and patches, as tables.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "helpers of tests may fail as tests do, and take literals"
)]

mod includes;
mod labels;
mod resource_modifiers;
mod resource_order;
mod resource_policies;
mod selection;
mod strategic_merge_patch;
