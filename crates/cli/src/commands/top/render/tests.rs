//! Frames of several sizes, and what keys change in them.

use jiff::{SignedDuration, Timestamp};
use plimsoll_observe::{ClusterState, Kind, Overview};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell, CellWidth};
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use super::super::app::{App, Prompt, UserAction, View};
use super::draw;

fn now() -> Timestamp {
    "2026-11-16T03:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

fn object(name: &str, written: i64, rest: &Value) -> Value {
    let mut object = json!({ "metadata": { "name": name, "namespace": "velero", "uid": name, "creationTimestamp": ago(620),
        "managedFields": [{ "time": ago(written) }], "labels": rest["labels"] } });
    object["spec"] = rest["spec"].clone();
    object["status"] = rest["status"].clone();
    object
}

fn backup(name: &str, phase: &str, written: i64) -> Value {
    object(
        name,
        written,
        &json!({ "spec": { "storageLocation": "default" }, "status": { "phase": phase,
        "startTimestamp": ago(620), "errors": 3, "progress": { "totalItems": 400, "itemsBackedUp": 120 } } }),
    )
}

fn location() -> Value {
    object(
        "default",
        5,
        &json!({ "spec": { "default": true }, "status": { "phase": "Available", "lastValidationTime": ago(5) } }),
    )
}

/// A backup that moves, a restore whose pod cannot be scheduled, one in the queue, and three that have ended.
fn cluster() -> ClusterState {
    let volume = object(
        "shop-x1",
        600,
        &json!({ "labels": { "velero.io/restore-name": "shop" },
        "spec": { "volume": "data", "pod": { "namespace": "shop", "name": "db-0" }, "snapshotSize": 3_221_225_472_u64 }, "status": { "phase": "New" } }),
    );
    let pod = json!({ "metadata": { "name": "db-0", "namespace": "shop", "creationTimestamp": ago(600) }, "status": { "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient memory." }] } });
    ClusterState::new("velero", now())
        .with(Kind::Location, location())
        .with(Kind::Backup, backup("nightly", "InProgress", 1))
        .with(Kind::Backup, backup("weekly", "Queued", 30))
        .with(Kind::Backup, backup("yesterday", "Completed", 600))
        .with(Kind::Backup, backup("before", "PartiallyFailed", 610))
        .with(Kind::Restore, object("shop", 590, &json!({ "spec": { "backupName": "yesterday" }, "status": { "phase": "InProgress", "startTimestamp": ago(620), "progress": { "totalItems": 40, "itemsRestored": 40 } } })))
        .with(Kind::PodVolumeRestore, volume)
        .with(Kind::Pod, pod)
}

fn app() -> App {
    app_with(&cluster())
}

fn app_with(cluster: &ClusterState) -> App {
    let mut app = App::new("velero", "");
    app.update(Overview::default().list_operations(cluster), cluster);
    app
}

fn picture(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    show(&mut terminal, app)
}

/// Draws a frame; returns what the terminal then shows.
fn show(terminal: &mut Terminal<TestBackend>, app: &mut App) -> String {
    terminal.draw(|frame| draw(frame, app)).unwrap();
    read(terminal.backend().buffer())
}

/// The text of the screen, without blanks at the ends of rows. The cell after a wide character is empty: it is left out.
fn read(buffer: &Buffer) -> String {
    let row = |cells: &[Cell]| {
        let (mut text, mut column) = (String::new(), 0);
        while let Some(cell) = cells.get(column) {
            text += cell.symbol();
            column += usize::from(cell.symbol().cell_width().max(1));
        }
        text.trim_end().to_owned()
    };
    buffer.content.chunks(usize::from(buffer.area.width)).map(row).collect::<Vec<_>>().join("\n")
}

/// The column in which a text starts.
fn column_of(row: &str, text: &str) -> usize {
    let before = row.find(text).unwrap_or_else(|| panic!("{text:?} is not in {row:?}"));
    super::text::width(&super::text::line(&row[..before]))
}

fn press(app: &mut App, keys: &str) -> UserAction {
    keys.chars().map(|letter| app.key(KeyCode::Char(letter))).last().unwrap()
}

#[test]
fn the_first_screen_shows_stuck_operations_and_their_cause() {
    let text = picture(&mut app(), 100, 24);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("1 stuck, 1 running, 1 waiting, 2 ended"), "{text}");
    assert!(lines[2].starts_with("! restore/shop") && lines[2].contains("STUCK"), "{text}");
    assert!(
        text.contains("cause  pod shop/db-0 cannot be scheduled: 0/3 nodes are available: 3 Insufficient memory."),
        "{text}"
    );
    assert!(text.contains("next   kubectl -n shop describe pod db-0"), "{text}");
}

#[test]
fn every_size_of_the_terminal_is_drawn() {
    for (width, height) in
        [(200, 60), (120, 30), (100, 24), (80, 24), (60, 16), (40, 10), (20, 5), (9, 3), (3, 2), (1, 1)]
    {
        for keys in ["", "w", "?", "c", "/x"] {
            let mut app = app();
            if !keys.is_empty() {
                press(&mut app, keys);
            }
            let text = picture(&mut app, width, height);
            assert!(
                text.lines().all(|line| super::text::width(&super::text::line(line)) <= usize::from(width)),
                "{text}"
            );
            if (width >= 20 && height >= 5) && keys.is_empty() {
                assert!(text.contains("! restore/shop"), "{width}x{height}:\n{text}");
            }
        }
    }
}

#[test]
fn keys_open_the_tree_and_the_explanation_and_escape_returns_to_the_list() {
    let mut app = app();
    app.key(KeyCode::Enter);
    let tree = picture(&mut app, 120, 30);
    assert!(
        tree.contains("shop/db-0: data") && tree.contains("3.0 GiB") && tree.contains("stalled for 10m00s"),
        "{tree}"
    );
    press(&mut app, "w");
    assert!(picture(&mut app, 120, 30).contains("podvolumerestore/shop-x1 (shop/db-0: data) has been New for"));
    app.key(KeyCode::Esc);
    assert_eq!(app.view, View::List);
    assert_eq!(app.key(KeyCode::Esc), UserAction::Quit);
}

#[test]
fn the_selection_stays_on_the_operation_when_the_order_changes() {
    let mut app = app();
    press(&mut app, "jj");
    let selected = app.selected.clone().unwrap();
    press(&mut app, "s");
    assert_eq!(app.selected.as_ref(), Some(&selected));
    press(&mut app, "G");
    app.key(KeyCode::Home);
    assert_eq!(app.position(), Some(0));
}

#[test]
fn a_filter_keeps_matching_operations_and_escape_clears_it() {
    let mut app = app();
    press(&mut app, "/week");
    app.key(KeyCode::Enter);
    assert_eq!(app.lines.iter().map(|line| line.reference.to_string()).collect::<Vec<_>>(), ["backup/weekly"]);
    assert!(picture(&mut app, 80, 24).contains("filter: week"));
    app.key(KeyCode::Esc);
    assert_eq!(app.lines.len(), 5);
    press(&mut app, "e");
    assert_eq!(app.lines.len(), 3, "without what has ended");
}

#[test]
fn cancel_asks_for_confirmation_and_is_refused_where_velero_cannot_cancel() {
    let mut app = app();
    press(&mut app, "c");
    assert!(
        matches!(&app.prompt, Prompt::Say(text) if text.contains("Velero has no way to cancel a restore")),
        "{:?}",
        app.prompt
    );
    let orphan = object(
        "lost",
        1,
        &json!({ "spec": { "volume": "data", "pod": { "namespace": "shop", "name": "db-1" } }, "status": { "phase": "InProgress" } }),
    );
    let cluster = ClusterState::new("velero", now()).with(Kind::PodVolumeBackup, orphan);
    app.update(Overview::default().list_operations(&cluster), &cluster);
    assert_eq!(press(&mut app, "c"), UserAction::None);
    assert!(picture(&mut app, 80, 24).contains("Cancel podvolumebackup/lost?"));
    assert_eq!(press(&mut app, "n"), UserAction::None, "anything but y is no");
    assert!(matches!(press(&mut app, "cy"), UserAction::Cancel(reference) if reference.name == "lost"));
}

#[test]
fn an_empty_list_names_a_missing_server_and_the_next_command() {
    let mut cluster = ClusterState::new("backups", now());
    let mut app = App::new("backups", "");
    app.update(Vec::new(), &cluster);
    assert!(!picture(&mut app, 120, 24).contains("server"), "no server was looked for");
    cluster.put(Kind::Deployment, Vec::new());
    app.update(Vec::new(), &cluster);
    let drawn = picture(&mut app, 120, 24);
    assert!(drawn.contains("No backups, restores or actions found in namespace backups."), "{drawn}");
    assert!(drawn.contains("neither Plimsoll nor Velero has a ready server in namespace backups"), "{drawn}");
    assert!(drawn.contains("next   plimsoll -n backups install --help"), "{drawn}");
    assert_eq!(
        super::super::list::plain_table(&[], &cluster)[0],
        "No backups, restores or actions found in namespace backups."
    );
}

#[test]
fn an_empty_list_is_readable_on_a_narrow_terminal() {
    let mut app = App::new("backups", "");
    assert!(picture(&mut app, 40, 10).contains("loading …"));
    app.update(Vec::new(), &ClusterState::new("backups", now()));
    let text = picture(&mut app, 40, 10);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1..3], ["No backups, restores or actions found in", "namespace backups."], "{text}");
    for view in [View::Tree, View::Why] {
        app.view = view;
        assert!(picture(&mut app, 40, 10).contains("It no longer exists."));
    }
}

/// Running backups, two of them with wide characters in their names.
fn wide_world() -> ClusterState {
    ["plain", "数据库备份", "💾-nightly"]
        .into_iter()
        .fold(ClusterState::new("velero", now()).with(Kind::Location, location()), |cluster, name| {
            cluster.with(Kind::Backup, backup(name, "InProgress", 1))
        })
}

#[test]
fn columns_are_aligned_beside_wide_names() {
    let mut app = app_with(&wide_world());
    for (width, height) in [(140, 24), (100, 24), (60, 24)] {
        let text = picture(&mut app, width, height);
        let rows: Vec<&str> = text.lines().collect();
        let status = column_of(rows[1], "STATUS");
        for name in ["backup/plain", "backup/数据库备份", "backup/💾-nightly"] {
            let row = rows.iter().find(|row| row.contains(&format!("{name} "))).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(column_of(row, "InProgress"), status, "{width}x{height}:\n{text}");
        }
    }
}

#[test]
fn a_wide_name_is_cut_between_characters_at_forty_columns() {
    let mut app = app_with(&wide_world());
    let text = picture(&mut app, 40, 12);
    let rows: Vec<&str> = text.lines().collect();
    // The column has 13 columns: seven for `backup/`, two for each character, one for the ellipsis.
    let row = rows.iter().find(|row| row.contains("backup/数据…")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(column_of(row, "InProgress"), column_of(rows[1], "STATUS"), "{text}");
    assert!(rows.iter().all(|row| super::text::width(&super::text::line(row)) <= 40), "{text}");
}

#[test]
fn a_log_of_wide_characters_is_wrapped_and_its_end_is_shown() {
    let mut app = app();
    app.view = View::Log(format!("{}\nthe last line", "数据".repeat(50)));
    app.scroll = usize::MAX;
    let text = picture(&mut app, 41, 6);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(
        rows[1..5],
        ["─ log ".to_owned() + &"─".repeat(35), "数据".repeat(10), "数据".repeat(10), "the last line".into()]
    );
    assert_eq!(app.scroll, 3, "limited to what can be scrolled");
}

#[test]
fn a_resize_draws_the_same_frame_as_a_new_terminal() {
    let mut app = app_with(&wide_world());
    let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
    assert_eq!(show(&mut terminal, &mut app), picture(&mut app, 120, 30));
    for (width, height) in [(40, 10), (140, 40), (20, 5), (1, 1), (100, 24)] {
        terminal.backend_mut().resize(width, height);
        assert_eq!(show(&mut terminal, &mut app), picture(&mut app, width, height), "{width}x{height}");
    }
}

#[test]
fn a_stalled_operation_is_red_and_the_selected_row_is_reversed() {
    let mut app = app();
    let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
    let text = show(&mut terminal, &mut app);
    let buffer = terminal.backend().buffer();
    let place = |needle: &str| {
        let (y, row) = text.lines().enumerate().find(|(_, row)| row.contains(needle)).unwrap();
        (u16::try_from(column_of(row, needle)).unwrap(), u16::try_from(y).unwrap())
    };
    for (needle, colour) in [("! restore/shop", Color::Red), ("STUCK", Color::Red), ("InProgress", Color::Cyan)] {
        assert_eq!(buffer[place(needle)].fg, colour, "{needle}\n{text}");
    }
    assert!(buffer[place("STUCK")].modifier.contains(Modifier::BOLD | Modifier::REVERSED));
    assert!(buffer[(99, place("STUCK").1)].modifier.contains(Modifier::REVERSED), "the whole row");
    assert!(!buffer[place("InProgress")].modifier.contains(Modifier::REVERSED));
    assert_eq!(buffer[place("pod shop/db-0 cannot be scheduled: 0/3")].fg, Color::Red, "the cause");
}
