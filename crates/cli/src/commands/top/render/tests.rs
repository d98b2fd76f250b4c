//! The picture at several sizes, and what keys make of it.

use jiff::{SignedDuration, Timestamp};
use plimsoll_observe::{ClusterState, Kind, Overview};
use serde_json::{Value, json};

use super::super::app::{App, Prompt, UserAction, View};
use super::super::canvas::Canvas;
use super::super::keys::Key;
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

/// A backup that moves, a restore whose pod cannot be scheduled, one in the queue, and three that have ended.
fn world() -> ClusterState {
    let backup = |name: &str, phase: &str, written: i64| {
        object(
            name,
            written,
            &json!({ "spec": { "storageLocation": "default" }, "status": { "phase": phase,
            "startTimestamp": ago(620), "errors": 3, "progress": { "totalItems": 400, "itemsBackedUp": 120 } } }),
        )
    };
    let volume = object(
        "shop-x1",
        600,
        &json!({ "labels": { "velero.io/restore-name": "shop" },
        "spec": { "volume": "data", "pod": { "namespace": "shop", "name": "db-0" }, "snapshotSize": 3_221_225_472_u64 }, "status": { "phase": "New" } }),
    );
    let pod = json!({ "metadata": { "name": "db-0", "namespace": "shop", "creationTimestamp": ago(600) }, "status": { "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient memory." }] } });
    ClusterState::new("velero", now())
        .with(Kind::Location, object("default", 5, &json!({ "spec": { "default": true }, "status": { "phase": "Available", "lastValidationTime": ago(5) } })))
        .with(Kind::Backup, backup("nightly", "InProgress", 1))
        .with(Kind::Backup, backup("weekly", "Queued", 30))
        .with(Kind::Backup, backup("yesterday", "Completed", 600))
        .with(Kind::Backup, backup("before", "PartiallyFailed", 610))
        .with(Kind::Restore, object("shop", 590, &json!({ "spec": { "backupName": "yesterday" }, "status": { "phase": "InProgress", "startTimestamp": ago(620), "progress": { "totalItems": 40, "itemsRestored": 40 } } })))
        .with(Kind::PodVolumeRestore, volume)
        .with(Kind::Pod, pod)
}

fn app() -> App {
    let mut app = App::new("velero", "");
    app.take(Overview::default().list_operations(&world()), &world());
    app
}

fn picture(app: &mut App, width: usize, height: usize) -> String {
    let mut canvas = Canvas::new(width, height);
    draw(&mut canvas, app);
    canvas.text()
}

fn press(app: &mut App, keys: &str) -> UserAction {
    keys.chars().map(|letter| app.key(Key::Letter(letter))).last().unwrap()
}

#[test]
fn the_first_screen_says_what_is_stuck_and_why() {
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
fn every_size_shows_what_fits_and_never_fails() {
    for (width, height) in
        [(200, 60), (120, 30), (100, 24), (80, 24), (60, 16), (40, 10), (20, 5), (9, 3), (3, 2), (1, 1)]
    {
        for keys in ["", "w", "?", "c", "/x"] {
            let mut app = app();
            if !keys.is_empty() {
                press(&mut app, keys);
            }
            let text = picture(&mut app, width, height);
            assert!(text.lines().count() <= height && text.lines().all(|line| line.chars().count() <= width), "{text}");
            if (width >= 20 && height >= 5) && keys.is_empty() {
                assert!(text.contains("! restore/shop"), "{width}x{height}:\n{text}");
            }
        }
    }
}

#[test]
fn a_key_opens_the_tree_the_reason_and_the_help_and_escape_goes_back() {
    let mut app = app();
    app.key(Key::Enter);
    let tree = picture(&mut app, 120, 30);
    assert!(
        tree.contains("shop/db-0: data") && tree.contains("3.0 GiB") && tree.contains("stalled for 10m00s"),
        "{tree}"
    );
    press(&mut app, "w");
    assert!(picture(&mut app, 120, 30).contains("podvolumerestore/shop-x1 (shop/db-0: data) has been New for"));
    app.key(Key::Escape);
    assert_eq!(app.view, View::List);
    assert_eq!(app.key(Key::Escape), UserAction::Quit);
    assert_eq!(app.key(Key::Interrupt), UserAction::Quit);
}

#[test]
fn choosing_stays_with_the_operation_when_the_order_changes() {
    let mut app = app();
    press(&mut app, "jj");
    let chosen = app.chosen.clone().unwrap();
    press(&mut app, "s");
    assert_eq!(app.chosen.as_ref(), Some(&chosen));
    press(&mut app, "G");
    app.key(Key::Home);
    assert_eq!(app.position(), Some(0));
}

#[test]
fn a_filter_leaves_what_matches_and_escape_clears_it() {
    let mut app = app();
    press(&mut app, "/week");
    app.key(Key::Enter);
    assert_eq!(app.lines.iter().map(|line| line.reference.to_string()).collect::<Vec<_>>(), ["backup/weekly"]);
    assert!(picture(&mut app, 80, 24).contains("filter: week"));
    app.key(Key::Escape);
    assert_eq!(app.lines.len(), 5);
    press(&mut app, "e");
    assert_eq!(app.lines.len(), 3, "without what has ended");
}

#[test]
fn cancel_asks_first_and_is_refused_where_velero_has_none() {
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
    let world = ClusterState::new("velero", now()).with(Kind::PodVolumeBackup, orphan);
    app.take(Overview::default().list_operations(&world), &world);
    assert_eq!(press(&mut app, "c"), UserAction::None);
    assert!(picture(&mut app, 80, 24).contains("Cancel podvolumebackup/lost?"));
    assert_eq!(press(&mut app, "n"), UserAction::None, "anything but y is no");
    assert!(matches!(press(&mut app, "cy"), UserAction::Cancel(reference) if reference.name == "lost"));
}

#[test]
fn where_there_is_nothing_to_show_a_missing_server_is_named_with_the_next_command() {
    let mut world = ClusterState::new("backups", now());
    let mut app = App::new("backups", "");
    app.take(Vec::new(), &world);
    assert!(!picture(&mut app, 120, 24).contains("server"), "no server was looked for");
    world.put(Kind::Deployment, Vec::new());
    app.take(Vec::new(), &world);
    let drawn = picture(&mut app, 120, 24);
    assert!(drawn.contains("No backups, restores or actions found in namespace backups."), "{drawn}");
    assert!(drawn.contains("neither Plimsoll nor Velero has a ready server in namespace backups"), "{drawn}");
    assert!(drawn.contains("next   plimsoll -n backups install --help"), "{drawn}");
    assert_eq!(
        super::super::list::plain(&[], &world)[0],
        "No backups, restores or actions found in namespace backups."
    );
}
