//! Errors, as users see them.
//!
//! An error of the API server is printed as `kubectl` prints it. Everything else is `error: <what failed> <object>: <cause>`. A
//! command that helps follows on a line of its own.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use plimsoll_api::client_error::error_text;

/// Arguments that make no sense: exit code 2, as for those that the parser of the command line rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// The user ended a wait: exit code 130, as for any program that ends by Ctrl-C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted(pub String);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.0)
    }
}

impl Error for Interrupted {}

/// The hint of an error: what to do next. It is the outermost context of that error: `call().context(Hint(…))`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint(pub String);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints an error with its causes. The exit code tells wrong usage and Ctrl-C from failure.
#[expect(clippy::print_stderr, reason = "this is where errors reach the user")]
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("{}", text(error));
    let code = match error {
        error if error.is::<UsageError>() => 2,
        error if error.is::<Interrupted>() => 130,
        _ => 1,
    };
    code.into()
}

/// The error and its causes, to be part of another text.
pub fn cause_text(error: &anyhow::Error) -> String {
    error_text(error.as_ref())
}

/// The lines that [`report`] prints.
pub fn text(error: &anyhow::Error) -> String {
    let (outermost, hint) = match error.downcast_ref::<Hint>() {
        Some(hint) => (error.source().unwrap_or(error.as_ref()), format!("\nhint: {hint}")),
        None => (error.as_ref(), String::new()),
    };
    // kubectl has its own beginnings of lines, but for this one.
    let is_kubectls = outermost.is::<kube::Error>() && !is_unauthorized(outermost);
    let prefix = if is_kubectls || outermost.is::<Interrupted>() { "" } else { "error: " };
    format!("{prefix}{}{hint}", error_text(outermost))
}

fn is_unauthorized(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 401)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use kube::core::Status;

    use super::*;

    fn not_found() -> kube::Error {
        let status = Status::failure("backups.velero.io \"x\" not found", "NotFound").with_code(404);
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn an_error_of_the_api_server_is_printed_as_kubectl_prints_it_and_a_hint_follows() {
        let plain = "Error from server (NotFound): backups.velero.io \"x\" not found";
        assert_eq!(text(&not_found().into()), plain);
        let hinted = Err::<(), _>(not_found()).context(Hint("list them".into())).unwrap_err();
        assert_eq!(text(&hinted), format!("{plain}\nhint: list them"));
        let within = Err::<(), _>(not_found()).context("cannot plan the backup").unwrap_err();
        assert_eq!(text(&within), format!("error: cannot plan the backup: {plain}"));
        let unauthorized = kube::Error::Api(Status::failure("Unauthorized", "Unauthorized").with_code(401).boxed());
        assert_eq!(text(&unauthorized.into()), "error: You must be logged in to the server (Unauthorized)");
    }

    #[test]
    fn any_other_error_is_printed_with_its_causes_each_once() {
        let cause = || std::io::Error::other("no space left");
        let error = Err::<(), _>(cause()).context("cannot write a.txt").unwrap_err();
        assert_eq!(text(&error), "error: cannot write a.txt: no space left");
        let error = Err::<(), _>(cause()).context("cannot write a.txt: no space left").unwrap_err();
        assert_eq!(text(&error), "error: cannot write a.txt: no space left");
    }
}
