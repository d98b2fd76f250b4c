//! A process that says nothing: what the system knows about it.

/// What keeps a process from saying anything, if the system knows.
pub(crate) fn words(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let why = meaning(state(&stat)?)?;
    Some(format!("its process {process} {why}"))
}

/// The state, which follows the name of the program; that may hold anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Running and sleeping say nothing about why.
fn meaning(state: char) -> Option<&'static str> {
    match state {
        'T' | 't' => Some("was stopped by a signal: `kill -CONT` lets it go on"),
        'D' => Some("waits for a disk or a network file system that does not answer"),
        'Z' | 'X' => Some("is dead"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_told_from_one_that_waits_for_a_disk_whatever_its_name() {
        let told = |stat: &str| state(stat).and_then(meaning);
        assert!(told("12 (pli) D (soll) T 1 12").is_some_and(|why| why.contains("stopped")));
        assert!(told("12 (plimsoll) D 1 12").is_some_and(|why| why.contains("disk")));
        assert_eq!(told("12 (plimsoll) S 1 12"), None);
        assert_eq!(told("nonsense"), None);
    }

    #[test]
    fn what_runs_has_nothing_to_explain() {
        assert_eq!(words(std::process::id()), None);
    }
}
