//! The page: static files inside the binary.

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;

/// Path, content type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/mark.svg", "image/svg+xml", include_str!("page/mark.svg")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/stream.js", SCRIPT, include_str!("page/stream.js")),
    ("/list.js", SCRIPT, include_str!("page/list.js")),
    ("/detail.js", SCRIPT, include_str!("page/detail.js")),
    ("/views.js", SCRIPT, include_str!("page/views.js")),
    ("/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A route for each file.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let index = ("/index.html", FILES[0].1, FILES[0].2);
    FILES.iter().copied().chain([index]).fold(Router::new(), |router, (path, content_type, content)| {
        router.route(path, get(move || async move { ([(CONTENT_TYPE, content_type)], content) }))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_never_inserts_text_as_markup() {
        for (path, _, content) in FILES {
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"]
            {
                let allowed = content.replace("http://www.w3.org/", "");
                assert!(!allowed.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }

    /// The colours of one scheme, by name.
    fn palette(rule: &str) -> BTreeMap<&str, [f64; 3]> {
        let declarations = rule.split(';').filter_map(|one| one.trim().strip_prefix("--")?.split_once(": #"));
        let channel = |hex: &str, at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        declarations.map(|(name, hex)| (name, [0, 2, 4].map(|at| channel(hex, at)))).collect()
    }

    /// As the Web Content Accessibility Guidelines count it.
    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let linear = |c: f64| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let luminance = |[r, g, b]: [f64; 3]| 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn every_text_has_enough_contrast_in_light_and_dark() {
        let style = include_str!("page/style.css");
        let rules = style.split('{').filter(|rule| rule.trim_start().starts_with("color-scheme:"));
        let palettes: Vec<_> = rules.map(|rule| palette(rule.split('}').next().unwrap())).collect();
        assert_eq!(palettes.len(), 3, "light, dark as the system has it, dark as it was chosen");
        assert_eq!(palettes[1], palettes[2], "dark is the same whether the system or the user chose it");
        let everywhere = ["ground", "panel", "sunk"];
        let texts = ["ink", "soft", "faint", "run", "good", "bad", "warn", "wait"];
        let mut pairs: Vec<(&str, &str)> =
            texts.iter().flat_map(|text| everywhere.map(|ground| (*text, ground))).collect();
        pairs.extend([("run", "run-soft"), ("good", "good-soft"), ("bad", "bad-soft"), ("warn", "warn-soft")]);
        pairs.extend([("wait", "wait-soft"), ("soft", "dim-soft"), ("panel", "bad"), ("panel", "ink")]);
        pairs.extend(["ink", "soft", "faint"].map(|text| (text, "bad-soft")));
        pairs.extend(["warn-soft", "wait-soft"].iter().flat_map(|ground| [("ink", *ground), ("soft", *ground)]));
        for (number, palette) in palettes.iter().enumerate() {
            for (text, ground) in &pairs {
                let found = contrast(palette[text], palette[ground]);
                assert!(found >= 4.5, "{text} on {ground} is {found:.2} in scheme {number}");
            }
        }
    }
}
