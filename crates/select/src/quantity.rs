//! Kubernetes quantities such as `10Gi` or `1500M`.

/// A quantity, in thousandths so that `100m` is exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether it is above zero.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// In whole units, rounded up: bytes, for storage. `None` if negative or too large.
    pub fn whole(self) -> Option<u64> {
        u64::try_from((self.0 + 999) / 1000).ok().filter(|_| self.0 >= 0)
    }

    /// The number of units of another quantity that this one needs, rounded up. None for a negative quantity or an empty unit.
    pub fn in_units_of(self, unit: Self) -> Option<u64> {
        if self.0 < 0 || unit.0 <= 0 {
            return None;
        }
        u64::try_from(self.0.checked_add(unit.0 - 1)? / unit.0).ok()
    }

    /// Parses a quantity; fractions of a thousandth are rounded up.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '+' | '-' | '.')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (numerator, denominator) = scale(suffix)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let negative = whole.starts_with('-');
        let digits = format!("{}{fraction}", whole.trim_start_matches(['+', '-']));
        if digits.is_empty() || digits.len() > 24 || fraction.len() > 12 {
            return None;
        }
        let value: i128 = digits.parse().ok()?;
        let divisor = denominator.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
        let thousandths = value.checked_mul(numerator)?.checked_mul(1000)?;
        let rounded = (thousandths + divisor - 1) / divisor;
        Some(Self(if negative { -rounded } else { rounded }))
    }
}

/// A suffix as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let power = |base: i128, exponent: u32| base.checked_pow(exponent);
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        _ => {
            if let Some(exponent) = suffix.strip_prefix(['e', 'E']).filter(|rest| !rest.is_empty()) {
                let exponent: i32 = exponent.parse().ok()?;
                let factor = power(10, exponent.unsigned_abs())?;
                return Some(if exponent < 0 { (1, factor) } else { (factor, 1) });
            }
            let decimal = ["k", "M", "G", "T", "P", "E"].iter().position(|own| *own == suffix);
            let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|own| *own == suffix);
            let (base, step) = decimal.map(|step| (1000, step)).or(binary.map(|step| (1024, step)))?;
            Some((power(base, u32::try_from(step).ok()? + 1)?, 1))
        }
    }
}
