//! What `--help` prints beyond what the definitions of the commands say.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Arguments;

/// The heading of the options that every command has.
pub const GLOBAL_OPTIONS: &str = "Global options";

/// The commands, by what they are for. Every visible command is in exactly one group.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Backup and restore",
        &["backup", "restore", "schedule", "backup-location", "create", "get", "describe", "logs", "delete", "cancel"],
    ),
    ("Volumes", &["volume", "repo", "snapshot-location"]),
    ("Blueprints", &["blueprint", "profile", "action", "kando"]),
    ("Observe", &["top", "watch", "why", "ui"]),
    (
        "Administration",
        &[
            "install",
            "uninstall",
            "crds",
            "plugin",
            "server",
            "agent",
            "local",
            "demo",
            "debug",
            "client",
            "version",
            "completion",
            "help",
        ],
    ),
];

/// Commands whose verbs take names, and the kind of these names.
const NAMED_KINDS: [(&str, &str); 5] = [
    ("backup", "backup"),
    ("restore", "restore"),
    ("schedule", "schedule"),
    ("backup-location", "location"),
    ("action", "ActionSet"),
];

/// Verbs that take one name only.
const ONE_NAME: [&str; 2] = ["logs", "download"];

/// The definition of the whole command line.
pub fn command() -> Command {
    let mut root = with_global_flags(Arguments::command());
    for (command, kind) in NAMED_KINDS {
        root = root.mut_subcommand(command, |command| command.mut_subcommands(|verb| name_the_kind(verb, kind)));
    }
    let (groups, header) = (groups(&root), root.get_styles().get_header());
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\
         Run `plimsoll COMMAND --help` for the options and examples of a command.\n\n\
         {header}{GLOBAL_OPTIONS}:{header:#}\n{{options}}{{after-help}}"
    );
    root.help_template(template)
}

/// Help and version as options like any other: clap would put its own among those of the command.
fn with_global_flags(root: Command) -> Command {
    let flag = |name: &'static str, short: char| {
        Arg::new(name).short(short).long(name).global(true).help_heading(GLOBAL_OPTIONS)
    };
    root.disable_help_flag(true)
        .disable_version_flag(true)
        .arg(flag("help", 'h').action(ArgAction::Help).help("Print help"))
        .arg(flag("version", 'V').action(ArgAction::Version).help("Print the version of this program"))
}

/// The verbs of all kinds share their arguments; the help says what the names are names of.
fn name_the_kind(verb: Command, kind: &str) -> Command {
    if !verb.get_arguments().any(|argument| argument.get_id() == "names") {
        return verb;
    }
    let help = if ONE_NAME.contains(&verb.get_name()) {
        format!("Name of the {kind}")
    } else {
        format!("Names of the {kind}s")
    };
    verb.mut_arg("names", |names| names.help(help))
}

/// The commands of each group with their one-liners.
fn groups(root: &Command) -> String {
    // Adds the `help` command.
    let mut built = root.clone();
    built.build();
    let header = root.get_styles().get_header();
    let name = root.get_styles().get_literal();
    let width =
        built.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| command.get_name().len());
    let width = width.max().unwrap_or(0);
    let mut text = String::new();
    for (title, members) in GROUPS {
        let _ = writeln!(text, "{header}{title}:{header:#}");
        for member in members {
            let about = built.find_subcommand(member).and_then(Command::get_about).map(ToString::to_string);
            let _ = writeln!(text, "  {name}{member:width$}{name:#}  {}", about.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(command: &Command) -> impl Iterator<Item = &Command> {
        command.get_subcommands().filter(|command| !command.is_hide_set())
    }

    fn built() -> Command {
        let mut root = command();
        root.build();
        root
    }

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let root = built();
        let mut commands: Vec<_> = visible(&root).map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, members)| members.iter().copied()).collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
    }

    /// Every visible command that has no commands of its own, with its whole name.
    fn leaves(command: &Command, parent: &str) -> Vec<(String, Command)> {
        let name = format!("{parent} {}", command.get_name()).trim().to_owned();
        if !command.has_subcommands() {
            return vec![(name, command.clone())];
        }
        visible(command).filter(|below| below.get_name() != "help").flat_map(|below| leaves(below, &name)).collect()
    }

    #[test]
    fn every_command_that_takes_arguments_has_examples_and_they_are_its_own() {
        for (name, command) in leaves(&built(), "") {
            let own = command.get_arguments().any(|argument| !argument.is_global_set() && !argument.is_hide_set());
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let words = name.trim_start_matches("plimsoll ");
            assert!(!own || text.contains("Examples:\n  "), "{name} has no examples");
            assert!(
                !own || text.contains(words) || text.contains("kando") || name.starts_with("plimsoll create"),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn one_liners_are_short_imperative_sentences_without_a_full_stop() {
        for (name, command) in leaves(&built(), "") {
            let about = command.get_about().unwrap_or_else(|| panic!("{name} has no one-liner")).to_string();
            assert!(about.len() <= 100 && !about.ends_with('.') && !about.contains('\n'), "{name}: {about}");
            let verb = about.split(' ').next().unwrap_or_default();
            assert!(verb.starts_with(char::is_uppercase) && !verb.ends_with('s'), "{name}: {about}");
        }
    }

    #[test]
    fn global_options_follow_those_of_the_command() {
        for (name, mut command) in leaves(&built(), "") {
            let help = command.render_long_help().to_string();
            let (_, after) = help.split_once("\nGlobal options:\n").unwrap_or_else(|| panic!("{name}: {help}"));
            assert!(!after.contains("\nOptions:") && !after.contains("\nArguments:"), "{name}: {help}");
            let before = help.split("\nGlobal options:\n").next().unwrap_or_default();
            assert!(!before.contains("--kubeconfig <") && !before.contains("-h, --help"), "{name}: {help}");
        }
    }
}
