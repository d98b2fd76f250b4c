//! Every rule of the progress model, as a property or a story.

mod estimator;
mod frames;
mod handles;
mod invariants;
mod machine;
mod percent;
mod rates;
mod shapes;
mod stalls;
mod stress;
mod takeover;

#[path = "../grade/mod.rs"]
mod grade;
