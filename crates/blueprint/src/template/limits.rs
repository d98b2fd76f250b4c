//! Limits of one rendering. Templates are untrusted: any user who can write a Blueprint provides them.

/// Maximum length of a template.
pub(super) const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Maximum length of the output.
pub(super) const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// Maximum size of all intermediate values.
const MAX_ALLOCATED_BYTES: usize = 64 << 20;
/// Maximum number of steps: every node, call and loop iteration, and every 64 bytes that a call processes.
const MAX_STEPS: usize = 1_000_000;
/// Maximum nesting of blocks and parentheses in the source.
pub(super) const MAX_SOURCE_NESTING: usize = 60;
/// Maximum nesting of lists and maps that are converted, compared or printed.
pub(super) const MAX_VALUE_NESTING: usize = 120;

/// The error of exceeding a limit, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitExceeded(pub(super) &'static str);

/// The remaining budget while a template is rendered.
#[derive(Debug)]
pub(super) struct Budget {
    steps: usize,
    made: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { steps: MAX_STEPS, made: MAX_ALLOCATED_BYTES }
    }

    pub(super) fn steps(&mut self, steps: usize) -> Result<(), LimitExceeded> {
        self.steps = self.steps.checked_sub(steps).ok_or(LimitExceeded("1000000 steps"))?;
        Ok(())
    }

    /// Reserves bytes before they are allocated.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), LimitExceeded> {
        self.made = self.made.checked_sub(bytes).ok_or(LimitExceeded("64 MiB of values"))?;
        self.steps(bytes / 64)
    }
}
