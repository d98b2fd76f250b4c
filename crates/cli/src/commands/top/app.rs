//! Selection, order and open view. No drawing and no requests: keys in, actions out.

use plimsoll_observe::causes::{self, Cause};
use plimsoll_observe::{ClusterState, Kind, OperationSummary, Reference, UnreadResource};
use ratatui::crossterm::event::KeyCode;

use super::list;

/// The order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Urgency,
    Age,
    Name,
    Progress,
}

impl Sort {
    pub fn word(self) -> &'static str {
        match self {
            Self::Urgency => "urgency",
            Self::Age => "age",
            Self::Name => "name",
            Self::Progress => "progress",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Urgency => Self::Age,
            Self::Age => Self::Name,
            Self::Name => Self::Progress,
            Self::Progress => Self::Urgency,
        }
    }
}

/// The open view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    List,
    Tree,
    Why,
    Log(String),
    Help,
}

/// The content of the last row: a question or a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    None,
    Filter,
    Cancel(Reference),
    Say(String),
}

/// The action of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAction {
    None,
    Quit,
    Log(Reference),
    Cancel(Reference),
}

pub struct App {
    pub namespace: String,
    pub lines: Vec<OperationSummary>,
    pub unseen: Vec<UnreadResource>,
    pub server_missing: Option<Cause>,
    /// Objects were read at least once.
    pub ready: bool,
    pub clock: String,
    pub selected: Option<Reference>,
    pub sort: Sort,
    pub filter: String,
    pub show_ended: bool,
    pub view: View,
    pub prompt: Prompt,
    pub scroll: usize,
    all: Vec<OperationSummary>,
    /// Operations of Plimsoll by their subject, for actions.
    pub operations: Vec<(Reference, String)>,
    pub server_pod: Option<String>,
}

impl App {
    pub fn new(namespace: &str, filter: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            lines: Vec::new(),
            unseen: Vec::new(),
            server_missing: None,
            ready: false,
            clock: String::new(),
            selected: None,
            sort: Sort::Urgency,
            filter: filter.to_owned(),
            show_ended: true,
            view: View::List,
            prompt: Prompt::None,
            scroll: 0,
            all: Vec::new(),
            operations: Vec::new(),
            server_pod: None,
        }
    }

    /// Takes over the latest state of the cluster.
    pub fn update(&mut self, lines: Vec<OperationSummary>, cluster: &ClusterState) {
        (self.all, self.ready) = (lines, true);
        self.unseen.clone_from(&cluster.unseen);
        self.server_missing = causes::server_missing(cluster);
        self.clock = cluster.now.strftime("%H:%M:%S").to_string();
        let subject = |operation: &plimsoll_observe::Object| {
            let line = self.all.iter().find(|line| line.has_operation && uid_matches(line, operation, cluster))?;
            Some((line.reference.clone(), operation.name().to_owned()))
        };
        self.operations = cluster.all(Kind::Operation).iter().filter_map(subject).collect();
        let server = |pod: &&plimsoll_observe::Object| {
            pod.label("deploy") == "velero" || ["velero", "plimsoll"].contains(&pod.label("app.kubernetes.io/name"))
        };
        let mut servers = cluster.all(Kind::Pod).iter().filter(server);
        self.server_pod = servers.next().map(|pod| pod.name().to_owned());
        self.arrange();
    }

    fn arrange(&mut self) {
        let shown = |line: &&OperationSummary| {
            (self.show_ended || line.ended_ago.is_none()) && list::matches(line, &self.filter)
        };
        let mut lines: Vec<OperationSummary> = self.all.iter().filter(shown).cloned().collect();
        match self.sort {
            Sort::Urgency => {}
            Sort::Age => lines.sort_by_key(|line| line.age),
            Sort::Name => lines.sort_by(|a, b| a.reference.cmp(&b.reference)),
            Sort::Progress => {
                lines.sort_by_key(|line| line.explanation.tree.percent().map(plimsoll_progress::Percent::hundredths));
            }
        }
        self.lines = lines;
        if self.position().is_none() {
            self.selected = self.lines.first().map(|line| line.reference.clone());
        }
    }

    /// The position of the selected operation in the list.
    pub fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.lines.iter().position(|line| line.reference == *selected)
    }

    /// The selected operation.
    pub fn line(&self) -> Option<&OperationSummary> {
        self.position().map(|place| &self.lines[place])
    }

    /// The action of a key.
    pub fn key(&mut self, key: KeyCode) -> UserAction {
        match std::mem::replace(&mut self.prompt, Prompt::None) {
            Prompt::Filter => self.type_filter(key),
            Prompt::Cancel(reference) => return confirm(reference, key),
            Prompt::Say(_) | Prompt::None => return self.command(key),
        }
        UserAction::None
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
                return;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.prompt = Prompt::Filter;
        self.arrange();
    }

    fn command(&mut self, key: KeyCode) -> UserAction {
        match key {
            KeyCode::Char('q') | KeyCode::Esc if self.view == View::List => {
                if key == KeyCode::Esc && !self.filter.is_empty() {
                    self.filter.clear();
                    self.arrange();
                    return UserAction::None;
                }
                return UserAction::Quit;
            }
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.open(View::List),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX / 2),
            KeyCode::Enter | KeyCode::Right => self.open(View::Tree),
            KeyCode::Char('w') => self.open(View::Why),
            KeyCode::Char('?' | 'h') => self.open(View::Help),
            KeyCode::Char('/') => {
                self.open(View::List);
                self.prompt = Prompt::Filter;
            }
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            KeyCode::Char('e') => {
                self.show_ended = !self.show_ended;
                self.arrange();
            }
            KeyCode::Char('l') => return self.ask_for_log(),
            KeyCode::Char('c') => self.ask_to_cancel(),
            _ => {}
        }
        UserAction::None
    }

    fn open(&mut self, view: View) {
        (self.view, self.scroll) = (view, 0);
    }

    fn ask_for_log(&mut self) -> UserAction {
        let Some(reference) = self.line().map(|line| line.reference.clone()) else { return UserAction::None };
        self.open(View::Log("fetching the log …".to_owned()));
        UserAction::Log(reference)
    }

    /// Asks for confirmation, or says why it cannot be cancelled.
    fn ask_to_cancel(&mut self) {
        let Some(line) = self.line() else { return };
        self.prompt = match refusal(line) {
            Some(reason) => Prompt::Say(reason),
            None => Prompt::Cancel(line.reference.clone()),
        };
    }

    fn step(&mut self, by: isize) {
        if self.view != View::List {
            let by = by.clamp(-100_000, 100_000);
            self.scroll = self.scroll.saturating_add_signed(by);
            return;
        }
        let last = self.lines.len().saturating_sub(1);
        let place = self.position().unwrap_or(0).saturating_add_signed(by).min(last);
        self.selected = self.lines.get(place).map(|line| line.reference.clone());
    }
}

fn uid_matches(line: &OperationSummary, operation: &plimsoll_observe::Object, cluster: &ClusterState) -> bool {
    let subject = cluster.get(&line.reference).map(|object| object.text("/metadata/uid"));
    subject.is_some_and(|uid| uid == operation.text("/spec/subject/uid"))
}

fn confirm(reference: Reference, key: KeyCode) -> UserAction {
    if key == KeyCode::Char('y') { UserAction::Cancel(reference) } else { UserAction::None }
}

/// Why something cannot be cancelled, if it cannot.
pub fn refusal(line: &OperationSummary) -> Option<String> {
    let reference = &line.reference;
    if line.ended_ago.is_some() {
        return Some(format!("{reference} has already ended"));
    }
    if line.has_operation || reference.kind.is_transfer() {
        return None;
    }
    Some(match reference.kind {
        Kind::ActionSet => format!(
            "Kanister cancels by deletion: kubectl -n {} delete actionset {}",
            reference.namespace, reference.name
        ),
        kind if kind.is_plugin_volume() => {
            "plugins cannot cancel a snapshot; cancel the backup or restore that waits for it".to_owned()
        }
        _ => format!(
            "Velero has no way to cancel a {}; only its volume transfers can be cancelled",
            reference.kind.word()
        ),
    })
}
