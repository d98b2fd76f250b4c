//! Floating-point numbers as Go prints them.

/// One of Go's formats `e`, `f` and `g` (and their capitals), with so many digits or as few as it takes.
pub(super) fn formatted(number: f64, verb: char, precision: Option<usize>) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let text = match verb.to_ascii_lowercase() {
        'e' => exponential(number, precision),
        'f' => precision.map_or_else(|| plain(number), |digits| format!("{number:.digits$}")),
        _ => shortest_form(number, precision),
    };
    if verb.is_ascii_uppercase() { text.to_uppercase() } else { text }
}

fn plain(number: f64) -> String {
    format!("{number}")
}

fn exponential(number: f64, precision: Option<usize>) -> String {
    let text = precision.map_or_else(|| format!("{number:e}"), |digits| format!("{number:.digits$e}"));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// `%g`: with an exponent if the number is very small or has more digits before the point than there is precision.
fn shortest_form(number: f64, precision: Option<usize>) -> String {
    let digits = precision.map(|digits| digits.max(1));
    let text = digits.map_or_else(|| format!("{number:e}"), |digits| format!("{number:.*e}", digits - 1));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let significant = mantissa.trim_start_matches('-').replace('.', "");
    let significant = significant.trim_end_matches('0').len().max(1);
    let limit = match digits {
        None => 6,
        Some(digits) if digits > significant && exponent >= 0 && significant > exponent.unsigned_abs() as usize => {
            significant
        }
        Some(digits) => digits,
    };
    if exponent < -4 || exponent >= i32::try_from(limit).unwrap_or(i32::MAX) {
        return exponential(number, Some(significant - 1));
    }
    let places = i32::try_from(significant).unwrap_or(i32::MAX) - 1 - exponent;
    format!("{number:.*}", usize::try_from(places).unwrap_or_default())
}
