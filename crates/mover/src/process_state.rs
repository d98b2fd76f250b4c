//! The state of a silent process, from `/proc`.

/// Describes why a process is blocked, if its state shows it.
pub(crate) fn describe_blocked(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let description = describe(state(&stat)?)?;
    Some(format!("mover process {process} {description}"))
}

/// The state. It follows the name of the program, which may contain any character.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Running and sleeping processes have no description.
fn describe(state: char) -> Option<&'static str> {
    match state {
        'T' | 't' => Some("is stopped by a signal; resume it with `kill -CONT`"),
        'D' => Some("is waiting for a disk or a network file system that does not respond"),
        'Z' | 'X' => Some("is dead"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_distinguished_from_one_that_waits_for_a_disk() {
        let described = |stat: &str| state(stat).and_then(describe);
        assert!(described("12 (pli) D (soll) T 1 12").is_some_and(|text| text.contains("stopped")));
        assert!(described("12 (plimsoll) D 1 12").is_some_and(|text| text.contains("disk")));
        assert_eq!(described("12 (plimsoll) S 1 12"), None);
        assert_eq!(described("nonsense"), None);
    }

    #[test]
    fn a_running_process_has_no_description() {
        assert_eq!(describe_blocked(std::process::id()), None);
    }
}
