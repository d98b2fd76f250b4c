//! The settings of Kanister's controller that functions honour: environment variables with its names.

use std::time::Duration;

/// Minutes until a pod must have started.
const POD_READY: [&str; 2] = ["TIMEOUT_WORKER_POD_READY", "KANISTER_POD_READY_WAIT_TIMEOUT"];
const DEFAULT_POD_READY: Duration = Duration::from_mins(15);
/// The image of pods that need one and have none in their arguments.
const TOOLS_IMAGE: &str = "KANISTER_TOOLS";
const DEFAULT_TOOLS_IMAGE: &str = "ghcr.io/kanisterio/kanister-tools:0.119.0";
/// Parallel transfers of kopia.
const PARALLEL_UPLOAD: &str = "DATA_STORE_PARALLEL_UPLOAD";
const PARALLEL_DOWNLOAD: &str = "DATA_STORE_PARALLEL_DOWNLOAD";
const DEFAULT_PARALLEL: u32 = 8;
/// `true`: pods get the namespace's default service account, without its token.
const SECURE_DEFAULTS: &str = "SECURE_DEFAULTS_FOR_JOB_PODS";

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Timeout of the start of a pod.
    pub pod_start_timeout: Duration,
    /// The default image with restic and kopia.
    pub tools_image: String,
    /// Files that kopia uploads at the same time.
    pub parallel_upload: u32,
    /// Files that kopia downloads at the same time.
    pub parallel_download: u32,
    /// Whether pods get no token of a service account.
    pub secure_defaults: bool,
}

impl Default for Environment {
    fn default() -> Self {
        Self::read(|_| None)
    }
}

impl Environment {
    /// The settings of this process.
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// A value that is not valid is the default, as in Kanister.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number =
            |name: &str| set(name).and_then(|value| value.trim().parse::<u32>().ok()).filter(|number| *number > 0);
        let minutes = POD_READY.iter().find_map(|name| number(name));
        Self {
            pod_start_timeout: minutes.map_or(DEFAULT_POD_READY, |minutes| Duration::from_mins(minutes.into())),
            tools_image: set(TOOLS_IMAGE).unwrap_or_else(|| DEFAULT_TOOLS_IMAGE.into()),
            parallel_upload: number(PARALLEL_UPLOAD).unwrap_or(DEFAULT_PARALLEL),
            parallel_download: number(PARALLEL_DOWNLOAD).unwrap_or(DEFAULT_PARALLEL),
            secure_defaults: set(SECURE_DEFAULTS).as_deref() == Some("true"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Environment {
        Environment::read(|name| values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn kanisters_variables_are_honoured() {
        let settings = read(&[
            ("TIMEOUT_WORKER_POD_READY", "2"),
            ("KANISTER_TOOLS", "mine"),
            ("DATA_STORE_PARALLEL_UPLOAD", "3"),
            ("SECURE_DEFAULTS_FOR_JOB_PODS", "true"),
        ]);
        assert_eq!((settings.pod_start_timeout, settings.parallel_upload), (Duration::from_mins(2), 3));
        assert_eq!((settings.tools_image.as_str(), settings.secure_defaults), ("mine", true));
        assert_eq!(read(&[("KANISTER_POD_READY_WAIT_TIMEOUT", "3")]).pod_start_timeout, Duration::from_mins(3));
    }

    #[test]
    fn what_is_not_set_or_not_valid_has_kanisters_default() {
        let settings = read(&[("TIMEOUT_WORKER_POD_READY", "soon"), ("DATA_STORE_PARALLEL_UPLOAD", "0")]);
        assert_eq!(settings, Environment::default());
        assert_eq!((settings.pod_start_timeout, settings.parallel_download), (Duration::from_mins(15), 8));
    }
}
