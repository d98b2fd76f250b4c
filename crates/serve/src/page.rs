//! The page: plain files, inside the binary.

use crate::answer::{Answer, whole};

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

/// The file at a path.
pub fn file(path: &str) -> Option<Answer> {
    let path = if path == "/index.html" { "/" } else { path };
    let (_, kind, content) = FILES.iter().find(|(known, ..)| *known == path)?;
    Some(whole(kind, *content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else_and_never_sends_text_as_markup() {
        for (path, _, content) in FILES {
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"]
            {
                let allowed = content.replace("http://www.w3.org/", "");
                assert!(!allowed.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}
