//! Go's `Sprintf`: verbs, flags, widths, indexes and error texts.

use super::eval_error::EvalError;
use super::format::{FormatBuffer, Spec, print};
use super::value::Value;

/// Maximum width and precision.
const MAX_WIDTH: usize = 1_000_000;

/// Formats values.
pub(super) fn sprintf(format: &[u8], values: &[Value]) -> Result<Vec<u8>, EvalError> {
    let mut printer =
        Printer { out: FormatBuffer::default(), format, at: 0, values, next: 0, reordered: false, good: true };
    printer.run()?;
    Ok(printer.out.bytes)
}

struct Printer<'a> {
    out: FormatBuffer,
    format: &'a [u8],
    at: usize,
    values: &'a [Value],
    next: usize,
    /// Whether an index was used: then extra values are not reported.
    reordered: bool,
    /// Whether the index of this verb was valid.
    good: bool,
}

impl Printer<'_> {
    fn run(&mut self) -> Result<(), EvalError> {
        while self.at < self.format.len() {
            let rest = &self.format[self.at..];
            let length = rest.iter().position(|byte| *byte == b'%').unwrap_or(rest.len());
            self.out.push(&rest[..length])?;
            self.at += length;
            if self.at < self.format.len() {
                self.at += 1;
                self.verb()?;
            }
        }
        self.left_over()
    }

    fn verb(&mut self) -> Result<(), EvalError> {
        self.good = true;
        let mut spec = self.flags();
        let mut indexed = self.index();
        if self.take(b'*') {
            spec.width = self.argument_number("%!(BADWIDTH)", &mut spec.minus)?;
            indexed = false;
        } else {
            spec.width = self.number();
            if indexed && spec.width.is_some() {
                self.good = false;
            }
        }
        if self.take(b'.') {
            if indexed {
                self.good = false;
            }
            indexed = self.index();
            if self.take(b'*') {
                let mut negative = false;
                let found = self.argument_number("%!(BADPREC)", &mut negative)?;
                spec.precision = found.filter(|_| !negative);
                if negative {
                    self.out.push("%!(BADPREC)")?;
                }
                indexed = false;
            } else {
                spec.precision = Some(self.number().unwrap_or_default());
            }
        }
        if !indexed {
            self.index();
        }
        self.finish(spec)
    }

    fn finish(&mut self, mut spec: Spec) -> Result<(), EvalError> {
        let Some(verb) = self.character() else { return self.out.push("%!(NOVERB)") };
        if verb == '%' {
            return self.out.push("%");
        }
        if !self.good {
            return self.out.push(format!("%!{verb}(BADINDEX)"));
        }
        let Some(value) = self.values.get(self.next) else {
            return self.out.push(format!("%!{verb}(MISSING)"));
        };
        self.next += 1;
        if verb == 'v' {
            spec.syntax = std::mem::take(&mut spec.sharp);
            spec.names = std::mem::take(&mut spec.plus);
        }
        if matches!(value, Value::Nil) && !matches!(verb, 'T' | 'v') {
            return self.out.push(format!("%!{verb}(<nil>)"));
        }
        print(&mut self.out, value, verb, spec, 0)
    }

    fn flags(&mut self) -> Spec {
        let mut spec = Spec::default();
        while let Some(flag) = self.format.get(self.at) {
            match flag {
                b'#' => spec.sharp = true,
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b'-' => spec.minus = true,
                b' ' => spec.space = true,
                _ => break,
            }
            self.at += 1;
        }
        spec
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.format.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn character(&mut self) -> Option<char> {
        let rest = self.format.get(self.at..).filter(|rest| !rest.is_empty())?;
        let text = rest.utf8_chunks().next().map(|chunk| chunk.valid()).unwrap_or_default();
        let Some(character) = text.chars().next() else {
            self.at += 1;
            return Some(char::REPLACEMENT_CHARACTER);
        };
        self.at += character.len_utf8();
        Some(character)
    }

    /// Parses digits; `None` if the number is too large.
    fn number(&mut self) -> Option<usize> {
        let mut found = None;
        while let Some(digit) = self.format.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            let number = found.unwrap_or(0) * 10 + usize::from(digit - b'0');
            if number > MAX_WIDTH {
                return None;
            }
            found = Some(number);
            self.at += 1;
        }
        found
    }

    /// `[n]`: the value to take next.
    fn index(&mut self) -> bool {
        if self.format.get(self.at) != Some(&b'[') {
            return false;
        }
        self.reordered = true;
        let rest = &self.format[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b']') else {
            self.good = false;
            self.at += 1;
            return false;
        };
        let index = std::str::from_utf8(&rest[1..end]).ok().and_then(|text| text.parse::<usize>().ok());
        self.at += end + 1;
        match index {
            Some(index) if (1..=self.values.len()).contains(&index) => self.next = index - 1,
            _ => self.good = false,
        }
        true
    }

    fn argument_number(&mut self, complaint: &str, negative: &mut bool) -> Result<Option<usize>, EvalError> {
        let value = self.values.get(self.next);
        let found = match value {
            Some(Value::Int(number, _)) if number.unsigned_abs() <= MAX_WIDTH as u64 => Some(*number),
            _ => None,
        };
        if value.is_some() {
            self.next += 1;
        }
        let Some(number) = found else {
            self.out.push(complaint)?;
            return Ok(None);
        };
        *negative |= number < 0;
        Ok(usize::try_from(number.unsigned_abs()).ok())
    }

    fn left_over(&mut self) -> Result<(), EvalError> {
        if self.reordered || self.next >= self.values.len() {
            return Ok(());
        }
        self.out.push("%!(EXTRA ")?;
        for (at, value) in self.values[self.next..].iter().enumerate() {
            if at > 0 {
                self.out.push(", ")?;
            }
            if let Some(found) = value.type_of() {
                self.out.push(found.name())?;
                self.out.push("=")?;
            }
            print(&mut self.out, value, 'v', Spec::default(), 0)?;
        }
        self.out.push(")")
    }
}
