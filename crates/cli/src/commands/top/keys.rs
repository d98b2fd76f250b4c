//! Bytes of a terminal, as keys.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
    /// Nothing will be typed any more.
    Gone,
}

/// Reads keys from bytes that may be cut anywhere.
#[derive(Default)]
pub struct Keys {
    rest: Vec<u8>,
}

impl Keys {
    /// The keys in these bytes. An escape at the end of a read is the key itself: terminals send a sequence in one piece.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend_from_slice(bytes);
        let mut found = Vec::new();
        let mut place = 0;
        while place < self.rest.len() {
            let Some((key, length)) = first(&self.rest[place..]) else { break };
            found.extend(key);
            place += length;
        }
        self.rest.drain(..place);
        found
    }
}

/// The first key and how many bytes it took; nothing if a letter is not complete.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes {
        [0x1b, b'[' | b'O', ..] if bytes.len() > 2 => Some(sequence(bytes)),
        [0x1b, ..] => Some((Some(Key::Escape), 1)),
        [b'\r' | b'\n', ..] => Some((Some(Key::Enter), 1)),
        [0x7f | 0x08, ..] => Some((Some(Key::Backspace), 1)),
        [0x03, ..] => Some((Some(Key::Interrupt), 1)),
        [0x00..=0x1f, ..] => Some((None, 1)),
        _ => letter(bytes),
    }
}

fn letter(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let length = match bytes[0] {
        0x00..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return Some((None, 1)),
    };
    let text = std::str::from_utf8(bytes.get(..length)?).ok();
    Some((text.and_then(|text| text.chars().next()).map(Key::Letter), length))
}

/// `ESC [ A`, `ESC O A`, `ESC [ 5 ~`, and with modifiers `ESC [ 1 ; 5 A`.
fn sequence(bytes: &[u8]) -> (Option<Key>, usize) {
    let end = bytes.iter().skip(2).position(|byte| (0x40..=0x7e).contains(byte));
    let Some(end) = end.map(|end| end + 2) else { return (None, bytes.len()) };
    let key = match (bytes[end], &bytes[2..end]) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
        (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        _ => None,
    };
    (key, end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_bytes_however_they_are_cut() {
        let mut keys = Keys::default();
        assert_eq!(
            keys.read(b"j\x1b[A\x1b[6~\x1bOHq"),
            [Key::Letter('j'), Key::Up, Key::PageDown, Key::Home, Key::Letter('q')]
        );
        assert_eq!(keys.read(b"\x1b"), [Key::Escape]);
        assert_eq!(keys.read(&[0xc3]), []);
        assert_eq!(keys.read(&[0xa4, b'\r', 0x7f, 3]), [Key::Letter('ä'), Key::Enter, Key::Backspace, Key::Interrupt]);
        assert_eq!(keys.read(b"\x1b[1;5B\x1b[200~x"), [Key::Down, Key::Letter('x')]);
        assert_eq!(keys.read(&[0xff, 0x01, b'k']), [Key::Letter('k')]);
    }
}
