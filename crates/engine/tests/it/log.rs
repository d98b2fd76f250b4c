//! The log of an operation while it is written and when it is complete.

use std::fs::File;
use std::io::Read;

use plimsoll_engine::log::{Level, OperationLog, tail};

#[test]
fn the_tail_is_whole_lines_with_their_offset() {
    let scratch = tempfile::tempdir().unwrap();
    assert_eq!(tail(scratch.path(), 100), None);
    let log = OperationLog::create(&scratch.path().join("log.gz")).unwrap();
    for number in 0..100 {
        log.info(format!("line {number}"));
    }
    let whole = tail(scratch.path(), 1 << 20).unwrap();
    assert_eq!((whole.offset, whole.text.lines().count()), (0, 100));
    let end = tail(scratch.path(), 200).unwrap();
    assert!(end.text.len() <= 200 && end.text.ends_with("msg=\"line 99\"\n"), "{end:?}");
    assert_eq!(whole.text[usize::try_from(end.offset).unwrap()..], end.text);
}

#[test]
fn the_finished_file_is_the_text_compressed() {
    let scratch = tempfile::tempdir().unwrap();
    let log = OperationLog::create(&scratch.path().join("log.gz")).unwrap();
    log.line(Level::Warning, "odd \"thing\"");
    let text = tail(scratch.path(), 1000).unwrap().text;
    let mut unpacked = String::new();
    let file = File::open(log.finish().unwrap()).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, text);
    assert!(text.ends_with("level=warning msg=\"odd \\\"thing\\\"\"\n"), "{text}");
}
