//! A connection so slow that a single pack takes minutes: it is a stall only while no bytes move.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use plimsoll_progress::{Operation, VirtualClock};
use plimsoll_repository::backup::BackupOptions;
use plimsoll_repository::{Cancel, Repository};

use crate::locking::until;
use crate::s3;
use crate::testbed::{PASSWORD, Testbed, random_bytes};

/// A proxy that forwards a limited number of bytes.
struct LimitedProxy {
    left: Mutex<usize>,
    changed: Condvar,
}

impl LimitedProxy {
    /// Forwards to a local port; returns its own port.
    fn to(port: u16, left: usize) -> (Arc<Self>, u16) {
        let line = Arc::new(Self { left: Mutex::new(left), changed: Condvar::new() });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let carrying = line.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
                let (mut from, mut to) = (server.try_clone().expect("a handle"), client.try_clone().expect("a handle"));
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let line = carrying.clone();
                std::thread::spawn(move || line.carry(client, server));
            }
        });
        (line, own)
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while from.peek(&mut buffer[..1]).is_ok_and(|there| there > 0) {
            let left = self.left.lock().expect("not poisoned");
            let mut left = self.changed.wait_while(left, |left| *left == 0).expect("not poisoned");
            let most = (*left).min(buffer.len());
            let read = from.read(&mut buffer[..most]).unwrap_or(0);
            *left -= read;
            drop(left);
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    fn allow(&self, bytes: usize) {
        let mut left = self.left.lock().expect("not poisoned");
        *left = left.saturating_add(bytes);
        self.changed.notify_all();
    }

    fn is_used_up(&self) -> bool {
        *self.left.lock().expect("not poisoned") == 0
    }
}

const MIB: usize = 1 << 20;

#[test]
fn a_slow_upload_is_a_stall_only_while_no_bytes_move() {
    let testbed = Testbed::new();
    let Some(server) = s3::start(&testbed, &[]) else { return };
    testbed.write("file", random_bytes(1, 24 * MIB));
    // Enough for all requests before the pack.
    let (line, port) = LimitedProxy::to(server.port, 2 * MIB);
    let store = s3::store(port);
    let made = Repository::init(store, testbed.runtime.handle().clone(), PASSWORD.as_bytes());
    let repository = Arc::new(made.expect("initializes"));
    let clock = VirtualClock::new();
    let operation = Operation::new("backup", clock.clock());
    let options = BackupOptions { pack_size: 32 * MIB, ..testbed.options() };
    let signals = || operation.snapshot().nodes[0].signals;
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&options, &operation.root(), &Cancel::default()));
        until("the pack is on its way", || {
            assert!(!running.is_finished(), "it ended before that");
            line.is_used_up()
        });
        for round in 0..4 {
            let before = signals();
            // The system wakes the sender when a good part of its buffer is free again.
            until("more of it has gone out", || {
                if line.is_used_up() {
                    line.allow(MIB / 4);
                }
                signals() > before
            });
            clock.advance(Duration::from_secs(25));
            let shown = operation.snapshot();
            assert_eq!(shown.stall, None, "{round}");
            assert!(!running.is_finished(), "{round}");
        }
        until("all that may go has gone", || line.is_used_up());
        until("it is called stalled", || {
            clock.advance(Duration::from_secs(1));
            operation.snapshot().stall.is_some()
        });
        line.allow(usize::MAX);
        running.join().expect("no panic").expect("backs up")
    });
    assert_eq!(outcome.problems, []);
    assert_eq!(operation.snapshot().stall, None);
}
