//! `status.plimsoll`: the progress summary that Plimsoll adds to the status of every kind that makes progress.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::macros::wire_struct;

wire_struct! {
    /// Progress, rate, remaining time and stall of the work.
    pub struct ProgressSummary {
        /// Percent done with two decimals, truncated: `43.33`; `~43.33` while part of the total is an estimate; `≥43.33` while it is held because the total grew.
        pub percent: Option<String>,
        /// Units processed per second, recently.
        pub rate: Option<i64>,
        /// What the rate counts: `bytes`, `items`, `files` or `steps`.
        pub unit: Option<String>,
        /// Seconds left, as a range: from p10 to p90.
        pub seconds_left: Option<[i64; 2]>,
        /// Where the seconds left come from: `pace` (of this run), `history` (of earlier runs) or `plan` (sizes and usual rates).
        pub from: Option<String>,
        /// What the seconds left are computed from; human-readable.
        pub estimate: Option<String>,
        /// Path of the task that the end waits for.
        pub waits_for: Option<String>,
        /// Which numbers these are, as `<epoch>-<sequence>`: where two surfaces show the same token, they show the same numbers.
        pub token: Option<String>,
        /// When the work last advanced.
        pub last_advance: Option<Time>,
        /// Path of the task that is running now.
        pub task: Option<String>,
        /// Of a transfer: what it does or waits for now; human-readable.
        pub doing: Option<String>,
        /// Of a transfer: files processed.
        pub files_done: Option<i64>,
        /// Of a transfer: number of files, once known.
        pub total_files: Option<i64>,
        /// `Stalled` (nothing moves), `Spinning` (busy without gain), `Crawling` (below 1 % of its usual rate) or `Quiet` (no signal by nature); absent while it advances.
        pub verdict: Option<String>,
        /// Present while a task does not go on as it should.
        pub stalled: Option<Stall>,
    }

    /// Which task does not advance, since when and why.
    pub struct Stall {
        /// Path of the deepest task that does not advance.
        pub task: Option<String>,
        /// When it last advanced, or gained something at its usual rate.
        pub since: Option<Time>,
        /// Stable reason in CamelCase.
        pub reason: Option<String>,
        /// Human-readable cause.
        pub message: Option<String>,
    }
}
