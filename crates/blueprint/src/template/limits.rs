//! How much one rendering may do. A template comes from whoever may write a Blueprint.

/// No template is longer than this.
pub(super) const SOURCE: usize = 1 << 20;
/// No output is longer than this.
pub(super) const OUTPUT: usize = 8 << 20;
/// All values made on the way together.
const MADE: usize = 64 << 20;
/// Steps: every node, call and turn of a loop, and every 64 bytes that a call looks at.
const STEPS: usize = 1_000_000;
/// Blocks and parentheses in each other, in the source.
pub(super) const NESTING: usize = 60;
/// Lists and maps in each other, when they are converted, compared or printed.
pub(super) const VALUES: usize = 120;

/// A limit that was hit, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exceeded(pub(super) &'static str);

/// What is left of the limits while a template is rendered.
#[derive(Debug)]
pub(super) struct Budget {
    steps: usize,
    made: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { steps: STEPS, made: MADE }
    }

    pub(super) fn steps(&mut self, steps: usize) -> Result<(), Exceeded> {
        self.steps = self.steps.checked_sub(steps).ok_or(Exceeded("1000000 steps"))?;
        Ok(())
    }

    /// Room for bytes that are about to be made.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.made = self.made.checked_sub(bytes).ok_or(Exceeded("64 MiB of values"))?;
        self.steps(bytes / 64)
    }
}
