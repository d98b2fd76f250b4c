//! The results: medians, and ratios with their targets.

use std::collections::BTreeMap;

use crate::peers::{Sample, Step};

/// All samples of one scenario, by step and program.
#[derive(Default)]
pub struct Table(BTreeMap<(Step, &'static str), Vec<Sample>>);

/// How many times faster than a peer a step must be.
const TARGETS: [(Step, &str, f64); 5] = [
    (Step::First, "kopia", 1.5),
    (Step::First, "restic", 3.0),
    (Step::Again, "kopia", 1.0),
    (Step::Restore, "restic", 2.0),
    (Step::Check, "restic", 1.8),
];

impl Table {
    pub fn add(&mut self, step: Step, name: &'static str, sample: Sample) {
        self.0.entry((step, name)).or_default().push(sample);
    }

    fn median(&self, step: Step, name: &'static str, what: fn(&Sample) -> f64) -> f64 {
        let mut values: Vec<_> = self.0.get(&(step, name)).into_iter().flatten().map(what).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    }

    /// Prints a Markdown table. Targets apply to the standard data.
    pub fn print(&self, title: &str, with_targets: bool) {
        println!("\n### {title}\n");
        let distant = self.0.values().flatten().any(|sample| sample.server_seconds > 0.0);
        let server_column = |of: &str| if distant { format!(" {of} |") } else { String::new() };
        println!(
            "| work | program | wall s | CPU s |{} peak MB | wall / ours | CPU / ours | target |",
            server_column("S3 CPU s")
        );
        println!("|---|---|---|---|{}---|---|---|---|", server_column("---"));
        for &(step, name) in self.0.keys() {
            let of = |name, what| self.median(step, name, what);
            let (wall, cpu) = (of(name, |s| s.wall), of(name, |s| s.cpu));
            let (wall_ratio, cpu_ratio) =
                (wall / of("plimsoll", |s| s.wall).max(0.01), cpu / of("plimsoll", |s| s.cpu).max(0.01));
            let target = TARGETS.iter().find(|target| with_targets && (target.0, target.1) == (step, name));
            let verdict = target.map_or(String::new(), |(_, _, least)| {
                format!("{least:.1}: {}", if wall_ratio >= *least { "reached" } else { "missed" })
            });
            let (step, memory, served) = (step.name(), of(name, |s| s.memory), of(name, |s| s.server_seconds));
            let served = server_column(&format!("{served:.2}"));
            println!(
                "| {step} | {name} | {wall:.2} | {cpu:.2} |{served} {memory:.0} | {wall_ratio:.2} | {cpu_ratio:.2} | {verdict} |"
            );
        }
    }
}
