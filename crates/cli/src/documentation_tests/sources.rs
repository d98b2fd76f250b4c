//! What the pages for contributors and the explanations say of the sources is true: paths, test modules, functions and
//! constants exist under the names that they have there.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::{lines_with_language, pages, shell_commands, typed_lines, workspace};

/// The directories whose paths are written from the root of the repository.
const DIRECTORIES: [&str; 5] = ["crates/", "docs/", "hack/", "deploy/", "fuzz/"];

fn source_pages() -> Vec<PathBuf> {
    let is_about_sources = |page: &PathBuf| {
        let page = page.strip_prefix(workspace()).unwrap();
        ["CONTRIBUTING.md", "docs/contributing", "docs/explanation"].iter().any(|part| page.starts_with(part))
    };
    pages().into_iter().filter(is_about_sources).collect()
}

/// The inline code of a page.
fn code_spans(text: &str) -> Vec<&str> {
    let outside = lines_with_language(text).into_iter().filter(|(language, _)| language.is_none());
    outside.flat_map(|(_, line)| line.split('`').skip(1).step_by(2)).collect()
}

fn is_path(span: &str) -> bool {
    let is_word = !span.contains([' ', '(', '{', '~', ':']);
    let has_extension = [".rs", ".md", ".tsv"].iter().any(|extension| span.ends_with(extension));
    is_word && (has_extension || DIRECTORIES.iter().any(|directory| span.starts_with(directory)))
}

/// Whether a path exists. Where it has a placeholder or a wildcard, what stands before that has to exist.
fn exists(path: &Path) -> bool {
    let text = path.to_str().unwrap();
    let Some(open) = text.find(['<', '*']) else { return path.exists() };
    let (directory, beginning) = text[..open].rsplit_once('/').unwrap();
    let begins = |entry: std::fs::DirEntry| entry.file_name().to_str().unwrap().starts_with(beginning);
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.any(|entry| begins(entry.unwrap())))
}

/// The paths that do not exist. A path without a directory is beside or below the one that is named before it.
fn missing_paths(text: &str) -> Vec<String> {
    let root = workspace();
    let mut last = root.clone();
    let mut missing = Vec::new();
    for span in code_spans(text).into_iter().filter(|span| is_path(span)) {
        let candidates = [root.join(span), root.join("crates").join(span), last.join(span), last.with_file_name(span)];
        match candidates.into_iter().find(|path| exists(path)) {
            Some(_) if span.contains(['<', '*']) => {}
            Some(found) => last = found,
            None => missing.push(span.to_owned()),
        }
    }
    missing
}

fn is_test_module(crate_directory: &Path, module: &str) -> bool {
    let tests = crate_directory.join("tests/it");
    tests.join(format!("{module}.rs")).exists() || tests.join(module).join("mod.rs").exists()
}

/// What is wrong with a call of `cargo test`: its package, or the module or the name of a test that it selects.
fn wrong_test_command(words: &[String]) -> Option<String> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let ["cargo", "test", arguments @ ..] = words.as_slice() else { return None };
    let package = arguments.iter().skip_while(|word| **word != "-p").nth(1)?;
    let directory = workspace().join("crates").join(package.strip_prefix("plimsoll-")?);
    if !directory.exists() {
        return Some(format!("package {package}"));
    }
    let selected = arguments.iter().skip_while(|word| **word != "--").filter(|word| word.contains("::"));
    let wrong = selected.into_iter().find(|selected| {
        let (module, name) = (selected.split("::").next().unwrap(), selected.rsplit("::").next().unwrap());
        // On which of the two clusters tests run is chosen by these modules of every file.
        let is_module = ["local", "real"].contains(&module) || is_test_module(&directory, module);
        // A function, or what a macro of the tests makes of a name.
        let is_test =
            |name: &str| [format!("fn {name}("), format!("!({name}, ")].iter().any(|text| SOURCES.contains(text));
        !is_module || !(name.is_empty() || is_test(name))
    });
    wrong.map(|selected| format!("{package}: {selected}"))
}

/// The modules in the rows of tables with a column "modules of `DIRECTORY`" that are not there.
fn missing_modules(text: &str) -> Vec<String> {
    let mut directory = None;
    let mut missing = Vec::new();
    for line in text.lines() {
        if let Some((_, named)) = line.split_once("modules of `").filter(|_| line.starts_with('|')) {
            directory = named.split_once("/tests/it`").map(|(named, _)| workspace().join(named));
        } else if !line.starts_with('|') {
            directory = None;
        } else if let Some(directory) = &directory {
            let modules = line.split('`').skip(1).step_by(2);
            missing.extend(modules.filter(|module| !is_test_module(directory, module)).map(str::to_owned));
        }
    }
    missing
}

/// All Rust sources and scripts, as one text.
static SOURCES: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::new();
    let mut directories = vec![workspace().join("crates"), workspace().join("hack")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_none_or(|extension| extension == "rs") && !path.ends_with(file!()) {
                // Beside the sources of some tests lie files that are not text.
                text += &std::fs::read_to_string(path).unwrap_or_default();
            }
        }
    }
    text
});

/// Whether inline code names something of the sources that is not there.
fn is_missing_name(span: &str) -> bool {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|one| one.is_alphanumeric() || one == '_');
    let (name, is_call) = match span.split_once('(') {
        Some((called, _)) => (called.rsplit(['.', ':', ' ']).next().unwrap(), true),
        None => (span, false),
    };
    let is_constant = name.len() > 3 && name.starts_with(char::is_uppercase) && !name.contains(char::is_lowercase);
    if let Some(macro_name) = name.strip_suffix('!') {
        return is_name(macro_name) && !SOURCES.contains(&format!("macro_rules! {macro_name} "));
    }
    match name.split_once("::") {
        _ if is_call && is_name(name) => !SOURCES.contains(&format!("fn {name}")),
        Some((kind, variant)) if is_name(kind) && is_name(variant) && kind.starts_with(char::is_uppercase) => {
            !SOURCES.contains(kind) || !SOURCES.contains(variant)
        }
        _ => is_constant && is_name(name) && !SOURCES.contains(name),
    }
}

#[test]
fn what_is_not_there_is_found() {
    let text =
        "`crates/cli/src/args/names.rs`, `create.rs`, `nowhere.rs`, `crates/<name>/src`, `crates/nothing/<name>.rs`";
    assert_eq!(missing_paths(text), ["nowhere.rs", "crates/nothing/<name>.rs"]);
    let wrong = |line: &str| wrong_test_command(&shell_commands(line)[0]);
    assert_eq!(wrong("cargo test -p plimsoll-cli --test it -- local:: killed::local::"), None);
    assert!(wrong("cargo test -p plimsoll-nothing").is_some());
    assert!(wrong("cargo test -p plimsoll-cli --test it -- nothing::").is_some());
    assert!(wrong("cargo test -p plimsoll-cli --test it -- --exact killed::no_such_test").is_some());
    let table = "| change in | modules of `crates/cli/tests/it` |\n|---|---|\n| x | `killed`, `nothing` |";
    assert_eq!(missing_modules(table), ["nothing"]);
    let names = ["run_lifecycle()", "Kind::Nothing_such", "NO_SUCH_CONSTANT", "no_such_macro!(…)", "x.no_such_call()"];
    assert_eq!(names.map(is_missing_name), [false, true, true, true, true]);
}

#[test]
fn every_source_that_the_documentation_names_exists() {
    let mut wrong = Vec::new();
    for page in source_pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let spans = code_spans(&text);
        let commands = typed_lines(&text).into_iter().chain(spans.iter().map(|span| (*span).to_owned()));
        let found = missing_paths(&text)
            .into_iter()
            .chain(missing_modules(&text))
            .chain(commands.filter_map(|line| wrong_test_command(shell_commands(&line).first()?)))
            .chain(spans.iter().filter(|span| is_missing_name(span)).map(|span| (*span).to_owned()));
        wrong.extend(found.map(|what| format!("{}: {what}", page.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
