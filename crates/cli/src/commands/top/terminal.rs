//! The terminal: raw keys in, a picture out, and given back as it was, however this ends.
//!
//! Our own hundred lines rather than a library: it needs no event loop of its own beside the one that is there, and everything
//! the screen needs is in every terminal since the VT100.

use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::canvas::Canvas;
use super::keys::{Key, Keys};

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// How the terminal was before.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal is ours until this is dropped.
pub struct RawMode;

impl RawMode {
    /// Takes it. A panic gives it back before it is printed.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            usual(panic);
        }));
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives it back, once.
fn give_back() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

/// What is typed.
pub fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel();
    // Reading blocks, and cannot be interrupted: a thread of its own, which ends with the process.
    std::thread::spawn(move || {
        let (mut keys, mut bytes) = (Keys::default(), [0; 256]);
        while let Ok(count) = io::stdin().lock().read(&mut bytes) {
            if count == 0 {
                let _ = sender.send(Key::Gone);
                return;
            }
            for key in keys.read(&bytes[..count]) {
                if sender.send(key).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

/// What the terminal shows.
#[derive(Default)]
pub struct Screen {
    shown: Option<Canvas>,
}

impl Screen {
    /// An empty picture of the terminal's size.
    pub fn canvas() -> io::Result<Canvas> {
        let size = tcgetwinsize(io::stdout())?;
        // A terminal that does not know its size says 0.
        let or = |value: u16, usual: u16| usize::from(if value == 0 { usual } else { value });
        Ok(Canvas::new(or(size.ws_col, 80), or(size.ws_row, 24)))
    }

    /// Shows this picture.
    pub fn show(&mut self, canvas: Canvas) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(canvas.changes(self.shown.as_ref()).as_bytes())?;
        self.shown = Some(canvas);
        out.flush()
    }

    /// The next picture is drawn whole: the terminal has changed what it shows.
    pub fn forget(&mut self) {
        self.shown = None;
    }
}
