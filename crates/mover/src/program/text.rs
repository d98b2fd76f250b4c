//! Texts of programs, shortened for messages.

/// The maximum length of a program's text in a message.
const MAX_TEXT_LENGTH: usize = 400;

/// Truncates a text to one line of limited length, for messages.
pub(crate) fn truncate(text: &str) -> String {
    let one_line = one_line(text);
    match one_line.char_indices().nth(MAX_TEXT_LENGTH) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}

/// Truncates the front: the cause of a failure is at the end of a program's output.
pub(super) fn truncate_front(text: &str) -> String {
    let one_line = one_line(text);
    match one_line.char_indices().nth_back(MAX_TEXT_LENGTH) {
        Some((before, dropped)) => format!("…{}", &one_line[before + dropped.len_utf8()..]),
        None => one_line,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes Go stack traces: lines with a function, each followed by a line with a source position, which starts with a tab.
pub(super) fn without_stack(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_position = |line: Option<&&str>| line.is_some_and(|line| line.starts_with('\t'));
    let is_kept = |at: usize| !is_position(lines.get(at)) && !is_position(lines.get(at + 1));
    (0..lines.len()).filter(|at| is_kept(*at)).map(|at| lines[at]).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let text = "a long log line\n".repeat(100) + "the actual error";
        let kept = truncate_front(&text);
        assert!(kept.starts_with('…') && kept.ends_with("the actual error"), "{kept}");
        assert_eq!(kept.chars().count(), MAX_TEXT_LENGTH + 1);
        assert_eq!(truncate_front(" one\n two "), "one two");
    }

    #[test]
    fn a_stack_trace_is_removed() {
        let text = "Access Denied.\nclient.PutObject\nmain.Save\n\t/build/s3.go:307\nruntime.goexit\n\t/go/asm.s:1594\n\
                     unable to create lock in backend\n";
        assert_eq!(without_stack(text), "Access Denied.\nclient.PutObject\nunable to create lock in backend");
    }
}
