//! The terminal: input events in, frames out.

use std::io::{self, stdout};

use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, size};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use tokio::sync::mpsc;

use super::app::App;
use super::render;

/// The size that is assumed where the terminal does not know its own, as some serial consoles do.
const DEFAULT_AREA: Rect = Rect::new(0, 0, 80, 24);

/// The alternate screen in raw mode.
///
/// # Guarantees
/// The terminal is restored when this is dropped, and before the message of a panic is printed.
pub struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Switches to the alternate screen.
    pub fn open() -> io::Result<Self> {
        let options = TerminalOptions { viewport: viewport(size()?) };
        let terminal = ratatui::try_init_with_options(options).and_then(enter_alternate_screen);
        Ok(Self { terminal: terminal.inspect_err(|_| ratatui::restore())? })
    }

    /// Draws the application; only cells that changed are sent.
    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.draw(|frame| render::draw(frame, app)).map(|_| ())
    }

    /// Takes over a new size. The terminal has reflowed the old content, so the next frame is drawn whole.
    ///
    /// Not `Terminal::clear`: it asks the terminal for the position of the cursor, and the thread of [`inputs`] would read the
    /// answer.
    pub fn resize(&mut self, (width, height): (u16, u16)) -> io::Result<()> {
        self.terminal.resize(Rect::new(0, 0, width, height))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // ratatui's panic hook has already restored it; a second time would move the cursor over the message.
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

fn enter_alternate_screen(mut terminal: DefaultTerminal) -> io::Result<DefaultTerminal> {
    execute!(stdout(), EnterAlternateScreen)?;
    // A terminal without an alternate screen still shows the shell.
    terminal.backend_mut().clear()?;
    Ok(terminal)
}

fn viewport((width, height): (u16, u16)) -> Viewport {
    if width == 0 || height == 0 { Viewport::Fixed(DEFAULT_AREA) } else { Viewport::Fullscreen }
}

/// An event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Key(KeyCode),
    Resize(u16, u16),
    /// Ctrl-C: in raw mode it is a key, not a signal.
    Interrupt,
}

/// Starts to read keys and changes of size. The channel is closed when the terminal cannot be read any more.
pub fn inputs() -> mpsc::UnboundedReceiver<Input> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Reading blocks and cannot be interrupted: it has its own thread, which ends with the process.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            for input in inputs_of(&event) {
                if sender.send(input).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

fn inputs_of(event: &Event) -> Vec<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_inputs(*key),
        Event::Resize(width, height) => vec![Input::Resize(*width, *height)],
        _ => Vec::new(),
    }
}

fn key_inputs(key: KeyEvent) -> Vec<Input> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => vec![Input::Interrupt],
        // The bytes of Ctrl-H and Ctrl-J are those of Backspace and Enter on some terminals.
        KeyCode::Char('h') if is_control => vec![Input::Key(KeyCode::Backspace)],
        KeyCode::Char('j') if is_control => vec![Input::Key(KeyCode::Enter)],
        KeyCode::Char(_) if is_control => Vec::new(),
        // Escape and a letter that arrive in one read look like Alt and the letter.
        code if key.modifiers.contains(KeyModifiers::ALT) => vec![Input::Key(KeyCode::Esc), Input::Key(code)],
        code => vec![Input::Key(code)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: KeyCode, modifiers: KeyModifiers) -> Vec<Input> {
        inputs_of(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_are_read_from_events_of_the_terminal() {
        let key = |code| vec![Input::Key(code)];
        assert_eq!(read(KeyCode::Char('数'), KeyModifiers::NONE), key(KeyCode::Char('数')));
        assert_eq!(read(KeyCode::Char('G'), KeyModifiers::SHIFT), key(KeyCode::Char('G')));
        assert_eq!(read(KeyCode::Down, KeyModifiers::CONTROL), key(KeyCode::Down));
        assert_eq!(read(KeyCode::Char('h'), KeyModifiers::CONTROL), key(KeyCode::Backspace));
        assert_eq!(read(KeyCode::Char('j'), KeyModifiers::CONTROL), key(KeyCode::Enter));
        assert_eq!(read(KeyCode::Char('q'), KeyModifiers::CONTROL), []);
        let both = [Input::Key(KeyCode::Esc), Input::Key(KeyCode::Char('/'))];
        assert_eq!(read(KeyCode::Char('/'), KeyModifiers::ALT), both);
    }

    #[test]
    fn ctrl_c_interrupts_and_other_events_are_not_keys() {
        assert_eq!(read(KeyCode::Char('c'), KeyModifiers::CONTROL), [Input::Interrupt]);
        assert_eq!(inputs_of(&Event::Resize(40, 10)), [Input::Resize(40, 10)]);
        assert_eq!(inputs_of(&Event::FocusGained), []);
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(inputs_of(&Event::Key(release)), []);
    }

    #[test]
    fn a_terminal_of_unknown_size_is_drawn_in_the_default_one() {
        assert_eq!(viewport((0, 0)), Viewport::Fixed(DEFAULT_AREA));
        assert_eq!(viewport((40, 10)), Viewport::Fullscreen);
    }
}
