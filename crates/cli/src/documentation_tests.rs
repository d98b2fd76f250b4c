//! The documentation is true where a program can tell: its commands exist, its links lead somewhere, its pages are in the book,
//! and so are the sources that it names.

mod references;
mod sources;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::error::ErrorKind;

use crate::args::help;

/// Pages outside of `docs`. The changelog is not one of them: its links are those of the day it was written.
const OTHER_PAGES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];

/// The longest line of prose.
const MAX_LINE_LENGTH: usize = 120;
/// Generated pages, the list of links that the book is made of, and pages that are still to be wrapped.
const LONG_LINES: [&str; 11] = [
    "CONTRIBUTING.md",
    "docs/SUMMARY.md",
    "docs/explanation/progress.md",
    "docs/explanation/security-model.md",
    "docs/reference/benchmarks.md",
    "docs/reference/blueprints.md",
    "docs/reference/cli.md",
    "docs/reference/locations-and-schedules.md",
    "docs/reference/progress-accuracy.md",
    "docs/reference/repository.md",
    "docs/reference/volumes.md",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<_> = OTHER_PAGES.iter().map(|name| workspace().join(name)).collect();
    let mut directories = vec![workspace().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The lines of a page, each with the language of the block of code that it is in.
fn lines_with_language(text: &str) -> Vec<(Option<&str>, &str)> {
    let mut language = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened.trim()),
            (Some(_), Some(_)) => language = None,
            (None, _) => lines.push((language, line)),
        }
    }
    lines
}

/// The lines that a reader would type, without the prompt, and with continued lines joined.
fn typed_lines(text: &str) -> Vec<String> {
    let mut typed = Vec::new();
    let mut continued = String::new();
    for (language, line) in lines_with_language(text) {
        let line = line.trim();
        let entered = match language {
            Some("sh") => line,
            Some("console" | "text") if !continued.is_empty() => line,
            Some("console" | "text") => match line.strip_prefix("$ ") {
                Some(entered) => entered,
                None => continue,
            },
            _ => continue,
        };
        match entered.strip_suffix('\\') {
            Some(part) => continued.push_str(part),
            None => typed.push(std::mem::take(&mut continued) + entered),
        }
    }
    typed
}

/// The words of each command of a line, as a shell splits it, up to a redirection or comment.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut quote, mut has_word, mut is_over) = (String::new(), None, false, false);
    for character in line.chars().chain([' ']) {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => word.push(character),
            (None, '\'' | '"') => (quote, has_word) = (Some(character), true),
            (None, '#') if !has_word => break,
            (None, ' ' | '|' | ';' | '&' | '>' | '<') => {
                let finished = std::mem::take(&mut word);
                if std::mem::take(&mut has_word) && !is_over {
                    commands.last_mut().unwrap().push(finished);
                }
                is_over |= matches!(character, '>' | '<');
                if matches!(character, '|' | ';' | '&') {
                    is_over = false;
                    commands.push(Vec::new());
                }
            }
            (None, _) => {
                word.push(character);
                has_word = true;
            }
        }
    }
    commands
}

/// Why `plimsoll` does not accept a command; `None` for other programs.
fn rejection(words: &[String]) -> Option<String> {
    let is_variable = |word: &&String| word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-'));
    let (variables, words) = words.split_at(words.iter().take_while(is_variable).count());
    if words.first().is_none_or(|program| program != "plimsoll") {
        return None;
    }
    let error = help::command().try_get_matches_from(words).err()?;
    // A variable in front of the command may stand for a required argument.
    let is_given = error.kind() == ErrorKind::MissingRequiredArgument && !variables.is_empty();
    (!is_given).then(|| error.to_string())
}

fn rejections(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let lines = lines.into_iter();
    let rejected = |line: String| {
        let errors: Vec<_> = shell_commands(&line).iter().filter_map(|words| rejection(words)).collect();
        errors.into_iter().map(move |error| format!("{line}\n  {error}"))
    };
    lines.flat_map(rejected).collect()
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    let split = |line: &str| shell_commands(line).into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
    assert_eq!(split("plimsoll a 'b c' --d=\"e f\"   # why"), [["plimsoll", "a", "b c", "--d=e f"]]);
    assert_eq!(split("kubectl get x | plimsoll why -"), [vec!["kubectl", "get", "x"], vec!["plimsoll", "why", "-"]]);
    assert_eq!(split("plimsoll install -o yaml > file.yaml"), [["plimsoll", "install", "-o", "yaml"]]);
    assert_eq!(split("plimsoll local --data-dir ./c &"), [["plimsoll", "local", "--data-dir", "./c"]]);
    assert_eq!(rejections(["plimsoll backup create x --no-such-flag".to_owned()]).len(), 1);
    assert_eq!(rejections(["A=b plimsoll no-such-command".to_owned(), "velero anything".to_owned()]).len(), 1);
}

#[test]
fn every_command_in_the_documentation_is_accepted() {
    let mut found = 0;
    for page in pages() {
        let lines = typed_lines(&std::fs::read_to_string(&page).unwrap());
        found += lines.iter().filter(|line| line.contains("plimsoll ")).count();
        let rejected = rejections(lines);
        assert!(rejected.is_empty(), "{}:\n{}", page.display(), rejected.join("\n"));
    }
    assert!(found > 50, "only {found} commands were found: are they still in blocks of `sh`?");
}

#[test]
fn every_example_of_the_help_is_accepted() {
    fn examples(command: &Command, into: &mut Vec<String>) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default().replace("\\\n", " ");
        into.extend(text.lines().map(str::trim).filter(|line| line.contains("plimsoll ")).map(str::to_owned));
        command.get_subcommands().for_each(|below| examples(below, into));
    }
    let mut lines = Vec::new();
    examples(&help::command(), &mut lines);
    // A sentence may begin with the name of the program, an example has no full stop.
    lines.retain(|line| !line.ends_with('.') && !line.contains('`'));
    assert!(lines.len() > 50, "{lines:#?}");
    let rejected = rejections(lines);
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
}

/// The targets of the links and images of a page, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for (_, line) in lines_with_language(text).into_iter().filter(|(language, _)| language.is_none()) {
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
            let targets = line.split(opening).skip(1).filter_map(|rest| rest.split_once(closing));
            links.extend(targets.map(|(target, _)| target.to_owned()));
        }
    }
    links
}

/// The anchors of a page: its headings as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside = lines_with_language(text).into_iter().filter(|(language, _)| language.is_none());
    let headings =
        outside.filter(|(_, line)| line.starts_with('#')).map(|(_, line)| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|one| one.is_alphanumeric() || [' ', '-', '_'].contains(one));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let has_anchor = || std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
            if !target.exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_book() {
    let docs = workspace().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = links(&summary).into_iter().map(|link| docs.join(link)).collect();
    let pages = pages().into_iter().filter(|page| page.starts_with(&docs) && !page.ends_with("SUMMARY.md"));
    let missing: Vec<_> = pages.filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "add to docs/SUMMARY.md: {missing:#?}");
}

#[test]
fn lines_of_prose_are_short() {
    let mut long = Vec::new();
    for page in pages() {
        let name = page.strip_prefix(workspace()).unwrap().display().to_string();
        if LONG_LINES.contains(&name.as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let prose = lines_with_language(&text).into_iter().filter(|(language, _)| language.is_none());
        // Rows of tables, and pictures, cannot be broken.
        let prose = prose.map(|(_, line)| line).filter(|line| !line.trim_start().starts_with(['|', '<']));
        let too_long = prose.filter(|line| line.chars().count() > MAX_LINE_LENGTH);
        long.extend(too_long.map(|line| format!("{name}: {line}")));
    }
    assert!(long.is_empty(), "run hack/wrap-docs on the pages:\n{}", long.join("\n"));
}
