//! `status.plimsoll`: what we add to the status of every kind that makes progress, in one shape.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::macros::wire_struct;

wire_struct! {
    /// How far the work is, how fast it goes, how long it will take and what it waits for.
    pub struct ProgressSummary {
        /// Percent done with two decimals, cut and not rounded: `43.33`; `~43.33` while the total still grows.
        pub percent: Option<String>,
        /// Units settled per second over the last while.
        pub rate: Option<i64>,
        /// What the rate counts: `bytes`, `items`, `files` or `steps`.
        pub unit: Option<String>,
        /// Seconds left as a range: at least, at most.
        pub seconds_left: Option<[i64; 2]>,
        /// When the work last advanced.
        pub last_advance: Option<Time>,
        /// Path of the task that is running now.
        pub task: Option<String>,
        /// Of a transfer: what it does or waits for right now, in words for people.
        pub doing: Option<String>,
        /// Of a transfer: files settled.
        pub files_done: Option<i64>,
        /// Of a transfer: all files, once that is known.
        pub total_files: Option<i64>,
        /// Present while a task has not advanced for longer than it should.
        pub stalled: Option<Stall>,
    }

    /// Which task does not advance, since when and why.
    pub struct Stall {
        /// Path of the deepest task that stands still.
        pub task: Option<String>,
        /// When it last advanced.
        pub since: Option<Time>,
        /// Stable reason in CamelCase.
        pub reason: Option<String>,
        /// What is known about the cause, for people.
        pub message: Option<String>,
    }
}
