//! Prometheus' text format, version 0.0.4. Why no crate writes it: `docs/adr/0007-own-metrics-text.md`.

use std::fmt::Write as _;

/// The text of all metrics.
#[derive(Default)]
pub struct Exposition(String);

/// Names and values of labels.
pub type Labels<'l> = &'l [(&'l str, &'l str)];

impl Exposition {
    /// Starts a metric family; its samples follow.
    pub fn family(&mut self, name: &'static str, metric_type: &str, help: &str) -> Family<'_> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {metric_type}");
        Family { exposition: self, name }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// One metric family.
pub struct Family<'p> {
    exposition: &'p mut Exposition,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a sample.
    pub fn add(&mut self, labels: Labels<'_>, value: f64) {
        self.write_sample("", labels, value);
    }

    /// Adds the cumulative buckets, the sum and the count of a histogram.
    pub fn add_histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let mut cumulative = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            cumulative += count;
            self.write_bucket(labels, &bound.to_string(), cumulative);
        }
        self.write_bucket(labels, "+Inf", histogram.count);
        self.write_sample("_sum", labels, histogram.sum);
        self.write_sample("_count", labels, to_sample(histogram.count));
    }

    fn write_bucket(&mut self, labels: Labels<'_>, bound: &str, count: u64) {
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
        self.write_sample("_bucket", &labels, to_sample(count));
    }

    fn write_sample(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        let text: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        let text = if text.is_empty() { String::new() } else { format!("{{{}}}", text.join(",")) };
        let _ = writeln!(self.exposition.0, "{}{suffix}{text} {value}", self.name);
    }
}

/// A count as the value of a sample. Above 2^53 the last digits are lost, as they are in the collector.
#[expect(clippy::cast_precision_loss, reason = "samples are floating point")]
pub fn to_sample(count: u64) -> f64 {
    count as f64
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A histogram of durations.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// An empty histogram with these upper bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
    }

    /// Adds an observation.
    pub fn observe(&mut self, value: f64) {
        if let Some(bucket) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP velero_backup_success_total Successful backups.
# TYPE velero_backup_success_total counter
velero_backup_success_total{schedule="daily"} 3
velero_backup_success_total{schedule="a\"b\\c\nvelero_backup_total 9"} 1
# HELP velero_backup_total Existing backups.
# TYPE velero_backup_total gauge
velero_backup_total 7
# HELP velero_backup_duration_seconds Duration of successful backups.
# TYPE velero_backup_duration_seconds histogram
velero_backup_duration_seconds_bucket{schedule="daily",le="60"} 0
velero_backup_duration_seconds_bucket{schedule="daily",le="300"} 1
velero_backup_duration_seconds_bucket{schedule="daily",le="+Inf"} 2
velero_backup_duration_seconds_sum{schedule="daily"} 495.5
velero_backup_duration_seconds_count{schedule="daily"} 2
"#;

    #[test]
    fn names_types_bounds_and_escaped_labels_are_those_of_the_text_format() {
        let mut exposition = Exposition::default();
        let mut counter = exposition.family("velero_backup_success_total", "counter", "Successful backups.");
        counter.add(&[("schedule", "daily")], 3.0);
        counter.add(&[("schedule", "a\"b\\c\nvelero_backup_total 9")], 1.0);
        exposition.family("velero_backup_total", "gauge", "Existing backups.").add(&[], 7.0);
        let mut histogram = Histogram::new(&[60.0, 300.0]);
        histogram.observe(95.5);
        histogram.observe(400.0);
        let mut family =
            exposition.family("velero_backup_duration_seconds", "histogram", "Duration of successful backups.");
        family.add_histogram(&[("schedule", "daily")], &histogram);
        assert_eq!(exposition.finish(), TEXT);
    }
}
