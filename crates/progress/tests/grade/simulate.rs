//! Simulated runs.

use super::{Reading, Run};

/// What a simulated transfer is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The same speed throughout, give or take a tenth.
    Steady,
    /// Starts at a tenth of its speed, and has it after a tenth to a half of its time.
    Ramping,
    /// Seconds of work, then seconds of nothing.
    Bursty,
    /// Small files at a tenth of the speed, for a fifth to half of the time, then one big file.
    SmallThenBig,
    /// In the middle it becomes two to eight times slower.
    Throttled,
    /// Paused, for minutes.
    Paused,
    /// The process is killed; the next one passes over what is there already ten times as fast.
    Resumed,
    /// Moves once in five to twenty-five seconds, later perhaps once in a minute.
    Slow,
    /// Steady, but for one or two silences of twenty to twenty-seven seconds without notice, just short of a stall.
    Hiccups,
    /// Steady, but for one or two silences of half a minute to a minute in which it tries again, and says so.
    Retrying,
    /// Like one of the others, and then nothing moves any more.
    Hung,
}

impl Kind {
    pub const ALL: [Self; 11] = [
        Self::Steady,
        Self::Ramping,
        Self::Bursty,
        Self::SmallThenBig,
        Self::Throttled,
        Self::Paused,
        Self::Resumed,
        Self::Slow,
        Self::Hiccups,
        Self::Retrying,
        Self::Hung,
    ];

    /// All that a healthy run can be like.
    pub fn healthy() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|kind| *kind != Self::Hung)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Ramping => "ramping",
            Self::Bursty => "bursty",
            Self::SmallThenBig => "many small files, then a big one",
            Self::Throttled => "throttled",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Slow => "slow cadence",
            Self::Hiccups => "long silences",
            Self::Retrying => "trying again",
            Self::Hung => "hung",
        }
    }

    /// One run of this kind; another seed is another one.
    pub fn run(self, seed: u64) -> Run {
        self.run_of(seed, 60, 600)
    }

    /// The same, between so many seconds long.
    pub fn run_of(self, seed: u64, shortest: u64, longest: u64) -> Run {
        let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(self as u64));
        let length = dice.between(shortest, longest);
        let mut steps = self.steps(&mut dice, length);
        let hung = (self == Self::Hung).then(|| hang(&mut steps));
        Run { name: self.name().to_owned(), readings: readings(&steps), hung }
    }

    fn steps(self, dice: &mut Dice, length: u64) -> Vec<Step> {
        let speed = dice.between(1 << 16, 1 << 28);
        match self {
            Self::Steady => moving(length, |_| dice.noisy(speed)),
            Self::Ramping => {
                let ramp = length * dice.between(10, 50) / 100;
                moving(length, |at| dice.noisy(speed / 10 + speed * 9 / 10 * at.min(ramp) / ramp.max(1)))
            }
            Self::Bursty => bursty(dice, length, speed),
            Self::SmallThenBig => {
                let small = length * dice.between(20, 50) / 100;
                moving(length, |at| dice.noisy(if at < small { speed / 10 } else { speed }))
            }
            Self::Throttled => {
                let (from, slower) = (length * dice.between(20, 60) / 100, dice.between(2, 8));
                moving(length, |at| dice.noisy(if at < from { speed } else { speed / slower }))
            }
            Self::Paused => paused(dice, length, speed),
            Self::Resumed => resumed(dice, length, speed),
            Self::Slow => slow(dice, length, speed),
            Self::Hiccups => with_silences(dice, length, speed, (20, 27), u64::MAX),
            Self::Retrying => {
                let every = dice.between(5, 25);
                with_silences(dice, length, speed, (30, 60), every)
            }
            Self::Hung => {
                let kinds = Self::healthy();
                let which = dice.below(kinds.clone().count());
                kinds.clone().nth(which).unwrap_or(Self::Steady).steps(dice, length)
            }
        }
    }
}

/// What happens in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    moves: u64,
    /// It gives a sign of life.
    sign: bool,
    waiting: bool,
    taken_over: bool,
}

fn moving(length: u64, mut speed: impl FnMut(u64) -> u64) -> Vec<Step> {
    (0..length).map(|at| Step { moves: speed(at), ..Step::default() }).collect()
}

fn bursty(dice: &mut Dice, length: u64, speed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let (work, rest) = (dice.between(1, 12), dice.between(1, 16));
    while steps.len() < usize::try_from(length).unwrap_or(0) {
        let on = dice.between(1, work.max(2));
        steps.extend(moving(on, |_| dice.noisy(speed)));
        steps.extend(moving(dice.between(1, rest.max(2)), |_| 0));
    }
    steps
}

fn paused(dice: &mut Dice, length: u64, speed: u64) -> Vec<Step> {
    let mut steps = moving(length, |_| dice.noisy(speed));
    let at = usize::try_from(length * dice.between(20, 70) / 100).unwrap_or(0);
    let pause = vec![Step { waiting: true, ..Step::default() }; usize::try_from(dice.between(20, 200)).unwrap_or(0)];
    steps.splice(at..at, pause);
    steps
}

fn resumed(dice: &mut Dice, length: u64, speed: u64) -> Vec<Step> {
    let mut steps = moving(length, |_| dice.noisy(speed));
    let at = usize::try_from(length * dice.between(20, 60) / 100).unwrap_or(0);
    let done: u64 = steps[..at].iter().map(|step| step.moves).sum();
    let again = u64::try_from(at).unwrap_or(0) / 10 + 1;
    let mut pass_over = moving(again, |_| done / again);
    pass_over[0].taken_over = true;
    pass_over[0].moves += done % again;
    steps.splice(at..at, pass_over);
    steps
}

fn slow(dice: &mut Dice, length: u64, speed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let usual = dice.between(5, 18);
    let later = if dice.between(0, 1) == 1 { usual * 2 } else { usual };
    // Long enough for a cadence to be one.
    let length = usize::try_from(length).unwrap_or(0).max(300);
    while steps.len() < length {
        let gap = if steps.len() < length / 2 { usual } else { later };
        steps.extend(moving(gap * dice.between(70, 130) / 100, |_| 0));
        steps.push(Step { moves: dice.noisy(speed * gap), ..Step::default() });
    }
    steps
}

/// A steady run with a silence of `long` seconds in each half, or in one of them, with a sign of life every so many seconds.
fn with_silences(dice: &mut Dice, length: u64, speed: u64, long: (u64, u64), signs_every: u64) -> Vec<Step> {
    let mut steps = moving(length, |_| dice.noisy(speed));
    let half = steps.len() / 2;
    // Not where the halves meet, so that two silences never make one.
    let places = [half + 1 + dice.below(half - 1), dice.below(half)];
    for at in places.into_iter().skip(dice.below(2)) {
        let silence = (1..=dice.between(long.0, long.1))
            .map(|second| Step { sign: second % signs_every == 0, ..Step::default() })
            .collect::<Vec<_>>();
        steps.splice(at..at, silence);
    }
    steps
}

/// From some moment in the second half on nothing moves; long enough to be noticed. Returns that moment.
fn hang(steps: &mut Vec<Step>) -> u64 {
    let last = |steps: &[Step]| steps.iter().rposition(|step| step.moves > 0 && !step.waiting).unwrap_or(0);
    let at = last(&steps[..=steps.len() * 3 / 4]);
    steps.truncate(at + 1);
    steps.extend(vec![Step::default(); 400]);
    (u64::try_from(at).unwrap_or(0) + 1) * 1000
}

fn readings(steps: &[Step]) -> Vec<Reading> {
    // What a process that was killed had counted does not count towards the end of the next one.
    let from = steps.iter().rposition(|step| step.taken_over).unwrap_or(0);
    let hangs = steps.iter().rev().take_while(|step| step.moves == 0).count() >= 400;
    let total: u64 = steps[from..].iter().map(|step| step.moves).sum();
    let total = if hangs { total * 3 / 2 } else { total };
    let mut all = vec![Reading { total, ..Reading::default() }];
    let (mut settled, mut signs) = (0, 0);
    for (step, at) in steps.iter().zip(1..) {
        settled = if step.taken_over { step.moves } else { settled + step.moves };
        signs += u64::from(step.sign);
        let Step { waiting, taken_over, .. } = *step;
        all.push(Reading { at: at * 1000, settled, total, signs, waiting, taken_over, ..Reading::default() });
    }
    all
}

/// Numbers that look like chance and are the same every time.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.next() >> 11) % (high - low + 1)
    }

    /// An index into something so long.
    fn below(&mut self, length: usize) -> usize {
        let last = u64::try_from(length).unwrap_or(u64::MAX).saturating_sub(1);
        usize::try_from(self.between(0, last)).unwrap_or(0)
    }

    /// Give or take a tenth; at least one.
    fn noisy(&mut self, value: u64) -> u64 {
        (value * self.between(900, 1100) / 1000).max(1)
    }
}
