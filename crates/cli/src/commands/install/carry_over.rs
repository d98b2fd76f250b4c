//! The arguments of Velero's server: which of them the new server gets, and why it does not get the others.

/// The treatment of a flag of Velero's server.
#[derive(Clone, Copy)]
enum Treatment {
    /// The same flag.
    Same,
    /// The same flag, without a value.
    SameSwitch,
    /// A flag of another name.
    Renamed(&'static str),
    /// A default of Velero that says nothing, and otherwise the same flag.
    SameUnless(&'static str),
    /// It is not needed, for this reason: no word about it.
    NotNeeded,
    /// It has no effect here, for this reason.
    Dropped(&'static str),
}

use Treatment::{Dropped, NotNeeded, Renamed, Same, SameSwitch, SameUnless};

const MAINTENANCE: &str = "the server maintains repositories itself, one at a time and without jobs";
const METRICS: &str = "metrics are at the port of the dashboard";

/// Every flag of the server of Velero 1.18.
const FLAGS: &[(&str, Treatment)] = &[
    (
        "backup-repository-configmap",
        Dropped("its settings are those of Velero's kopia cache; see --agent-argument=--cache-limit"),
    ),
    ("backup-sync-period", Same),
    ("client-burst", Same),
    ("client-page-size", Same),
    ("client-qps", Same),
    ("colorized", NotNeeded),
    ("concurrent-backups", Renamed("concurrency")),
    ("credentials-directory", NotNeeded),
    ("default-backup-storage-location", Same),
    ("default-backup-ttl", Same),
    ("default-item-operation-timeout", Same),
    ("default-repo-maintain-frequency", Dropped(MAINTENANCE)),
    ("default-resource-modifier-configmap", Same),
    ("default-snapshot-move-data", SameSwitch),
    ("default-volume-snapshot-locations", Same),
    ("default-volumes-to-fs-backup", SameSwitch),
    ("disable-controllers", Same),
    ("disable-informer-cache", NotNeeded),
    ("features", SameUnless("")),
    ("fs-backup-timeout", Same),
    ("garbage-collection-frequency", Same),
    ("global-backup-volume-policies-configmap", Same),
    ("item-block-worker-count", Same),
    ("item-operation-sync-frequency", Dropped("background operations are read every second")),
    ("keep-latest-maintenance-jobs", Dropped(MAINTENANCE)),
    ("kubeconfig", Dropped("pass it with --server-argument=--kubeconfig")),
    ("kubecontext", Dropped("pass it with --server-argument=--context")),
    ("log-format", Dropped("the log is text")),
    ("log-level", Renamed("log")),
    ("maintenance-job-cpu-limit", Dropped(MAINTENANCE)),
    ("maintenance-job-cpu-request", Dropped(MAINTENANCE)),
    ("maintenance-job-mem-limit", Dropped(MAINTENANCE)),
    ("maintenance-job-mem-request", Dropped(MAINTENANCE)),
    // Velero parses it and never uses it.
    ("max-concurrent-k8s-connections", NotNeeded),
    ("metrics-address", Dropped(METRICS)),
    ("namespace", NotNeeded),
    ("plugin-dir", NotNeeded),
    ("pod-volume-operation-timeout", Renamed("fs-backup-timeout")),
    ("profiler-address", Dropped("there is no profiler")),
    ("repo-maintenance-job-configmap", Dropped(MAINTENANCE)),
    ("resource-timeout", Same),
    ("restore-only", SameSwitch),
    ("restore-resource-priorities", Same),
    ("schedule-skip-immediately", SameSwitch),
    ("store-validation-frequency", Same),
    ("terminating-resource-timeout", Same),
    // Here the mover is chosen at the installation, and `auto` uses kopia where Velero did.
    ("uploader-type", SameUnless("kopia")),
    ("volume-group-snapshot-label-key", SameUnless("velero.io/volume-group")),
];

/// The arguments of Velero's server that the new server gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CarriedOver {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The arguments that it does not get, each with the reason.
    pub dropped: Vec<String>,
}

/// Reads the arguments of Velero's server. A flag that the user passes to the new server, in `own`, is left to the user.
pub fn carry_over(velero: &[String], own: &[String]) -> CarriedOver {
    let mut carried = CarriedOver::default();
    let mut words = velero.iter().skip_while(|word| !word.starts_with("--")).peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else {
            carried.dropped.push(format!("argument {word}: unknown"));
            continue;
        };
        let (name, mut value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let treatment = FLAGS.iter().find(|(known, _)| *known == name).map(|(_, treatment)| *treatment);
        let takes_value = !matches!(treatment, Some(SameSwitch));
        if takes_value && value.is_none() && words.peek().is_some_and(|next| !next.starts_with("--")) {
            value = words.next().map(String::as_str);
        }
        if !is_set(own, name) {
            carried.add(name, value, treatment);
        }
    }
    carried
}

/// Whether the arguments have a flag.
fn is_set(arguments: &[String], name: &str) -> bool {
    arguments.iter().filter_map(|word| word.strip_prefix("--")).any(|flag| flag.split('=').next() == Some(name))
}

impl CarriedOver {
    fn add(&mut self, name: &str, value: Option<&str>, treatment: Option<Treatment>) {
        let given = value.map(|value| format!("={value}")).unwrap_or_default();
        let argument = |name: &str| format!("--{name}{given}");
        match treatment {
            Some(NotNeeded) => {}
            Some(SameUnless(default)) if value == Some(default) => {}
            Some(Same | SameSwitch | SameUnless(_)) => self.arguments.push(argument(name)),
            Some(Renamed(here)) => self.arguments.push(argument(here)),
            Some(Dropped(why)) => self.dropped.push(format!("--{name}{given}: {why}")),
            None => self.dropped.push(format!("--{name}{given}: unknown")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Arguments;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_carried_over_renamed_or_named() {
        let velero = "server --features= --uploader-type=kopia --default-volumes-to-fs-backup --concurrent-backups=2 \
                      --default-backup-ttl 48h --metrics-address :9000 --fancy";
        let carried = carry_over(&words(velero), &[]);
        let expected = ["--default-volumes-to-fs-backup", "--concurrency=2", "--default-backup-ttl=48h"];
        assert_eq!(carried.arguments, expected);
        let expected = ["--metrics-address=:9000: metrics are at the port of the dashboard", "--fancy: unknown"];
        assert_eq!(carried.dropped, expected);
    }

    #[test]
    fn what_the_user_passes_to_the_new_server_counts() {
        let carried = carry_over(&words("server --default-backup-ttl=48h"), &words("--default-backup-ttl=24h"));
        assert_eq!(carried, CarriedOver::default());
    }

    #[test]
    fn the_new_server_accepts_every_flag_that_is_carried_over() {
        let value = |name: &str| match name {
            "client-burst" | "client-page-size" | "client-qps" | "concurrent-backups" | "item-block-worker-count" => {
                "2"
            }
            "default-volume-snapshot-locations" => "aws:fast",
            "disable-controllers" => "gc",
            "features" => "EnableCSI",
            "log-level" => "debug",
            "restore-resource-priorities" => "secrets,-,jobs",
            "uploader-type" => "restic",
            "volume-group-snapshot-label-key" => "velero.io/volume-group",
            name if name.ends_with("configmap") || name.ends_with("location") => "name",
            _ => "1h",
        };
        for (name, treatment) in FLAGS {
            let velero = match treatment {
                SameSwitch => format!("--{name}"),
                _ => format!("--{name}={}", value(name)),
            };
            let carried = carry_over(&[velero], &[]);
            assert!(carried.arguments.len() + carried.dropped.len() <= 1, "{carried:?}");
            let typed = ["plimsoll", "server"].into_iter().map(str::to_owned).chain(carried.arguments);
            Arguments::try_parse_from(typed).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn flags_are_listed_once_in_order() {
        assert!(FLAGS.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}
