//! Prometheus' text format.

use std::fmt::Write as _;

/// A page of metrics.
#[derive(Default)]
pub struct Page(String);

/// Names and values of labels.
pub type Labels<'l> = &'l [(&'l str, &'l str)];

impl Page {
    /// Begins a metric; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { page: self, name }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// One metric.
pub struct Family<'p> {
    page: &'p mut Page,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a sample.
    pub fn add(&mut self, labels: Labels<'_>, value: f64) {
        self.named("", labels, value);
    }

    /// Adds a histogram: how many took at most so long, for each bound, and their sum.
    pub fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count;
            self.bucket(labels, &bound.to_string(), below);
        }
        self.bucket(labels, "+Inf", histogram.count);
        self.named("_sum", labels, histogram.sum);
        self.named("_count", labels, number(histogram.count));
    }

    fn bucket(&mut self, labels: Labels<'_>, bound: &str, count: u64) {
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
        self.named("_bucket", &labels, number(count));
    }

    fn named(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        let text: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let text = if text.is_empty() { String::new() } else { format!("{{{}}}", text.join(",")) };
        let _ = writeln!(self.page.0, "{}{suffix}{text} {value}", self.name);
    }
}

/// A count as a sample. Beyond 2^53 the last digits go, as they do in the collector.
#[expect(clippy::cast_precision_loss, reason = "samples are floating point")]
pub fn number(count: u64) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// How long things took.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// An empty one with these bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
    }

    /// One more.
    pub fn observe(&mut self, value: f64) {
        if let Some(place) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[place] += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}
