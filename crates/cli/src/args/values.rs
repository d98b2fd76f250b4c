//! Parsers of the values of options.

use std::time::Duration;

use plimsoll_controllers::cron::Cron;
use plimsoll_select::quantity::Quantity;

/// Parses a cron expression, as the server does.
pub fn cron(text: &str) -> Result<String, String> {
    text.parse::<Cron>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Parses a duration of Go that is not negative, e.g. `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<plimsoll_api::go::GoDuration>().map_err(|e| e.to_string())?;
    parsed.as_std().ok_or_else(|| "must not be negative".to_owned())
}

/// Parses a quantity of Kubernetes that is not negative, e.g. `100m` or `128Mi`.
pub fn quantity(text: &str) -> Result<String, String> {
    let is_quantity = Quantity::parse(text).and_then(Quantity::whole).is_some();
    if is_quantity { Ok(text.to_owned()) } else { Err("expected a quantity, e.g. 100m or 128Mi".to_owned()) }
}

/// Parses a size, as Kubernetes writes it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let read = Quantity::parse(text).and_then(Quantity::whole);
    read.ok_or_else(|| "expected a quantity, e.g. 500Mi or 5Gi".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_kubernetes_writes_them() {
        for (text, size) in [("0", Ok(0)), ("5Gi", Ok(5 << 30)), ("1.5k", Ok(1500)), ("100m", Ok(1))] {
            assert_eq!(bytes(text), size, "{text}");
        }
        for text in ["", "-1", "5GB", "much"] {
            assert!(bytes(text).expect_err(text).contains("500Mi"), "{text}");
        }
    }
}
