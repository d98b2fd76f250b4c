//! What really happens: volumes on nodes, at speeds that vary, with what each transfer costs besides its bytes.

use super::dice::Dice;

/// How volume data gets into a backup and back, or an ActionSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    PodVolumes,
    Restore,
    Csi,
    DataMovement,
    Plugins,
    ActionSet,
}

impl DataPath {
    pub const ALL: [Self; 6] =
        [Self::PodVolumes, Self::Restore, Self::Csi, Self::DataMovement, Self::Plugins, Self::ActionSet];

    pub fn name(self) -> &'static str {
        match self {
            Self::PodVolumes => "pod volumes, backup",
            Self::Restore => "pod volumes, restore",
            Self::Csi => "CSI snapshots",
            Self::DataMovement => "CSI data movement",
            Self::Plugins => "plugin snapshots",
            Self::ActionSet => "ActionSet",
        }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// Another server takes over.
    TakeOver,
    /// An agent dies, and its transfers begin again; what is stored already is passed over quickly.
    AgentKilled,
    /// One volume fails halfway.
    VolumeFails,
}

impl Trouble {
    pub const ALL: [Self; 4] = [Self::None, Self::TakeOver, Self::AgentKilled, Self::VolumeFails];
}

/// One case: everything that differs from one played operation to the next.
#[derive(Clone, Debug)]
pub struct Case {
    pub path: DataPath,
    /// Bytes of all volumes together.
    pub bytes: f64,
    /// How many times as many volumes as can run at once.
    pub queue: usize,
    /// Runs after the first one pass over what has not changed.
    pub incremental: bool,
    pub trouble: Trouble,
    pub seed: u64,
}

/// A volume, and what its transfer costs.
#[derive(Clone, Debug)]
pub struct Volume {
    pub node: usize,
    pub bytes: f64,
    pub capacity: f64,
    /// Seconds before its first byte, and after its last one.
    pub before: f64,
    pub after: f64,
    /// Its own speed limit: small files are slower.
    pub limit: f64,
    /// The share that is stored anew in an incremental run.
    pub changed: f64,
}

/// The cluster of one case: the same in all its runs.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub volumes: Vec<Volume>,
    pub slots: usize,
    pub items: f64,
    pub items_per_second: f64,
    /// Bytes a second of each node.
    speeds: Vec<f64>,
    /// How much a speed wanders.
    wander: f64,
    fixed: f64,
}

impl Cluster {
    pub fn of(case: &Case) -> Self {
        let mut dice = Dice::new(case.seed.wrapping_mul(977).wrapping_add(case.path as u64));
        let nodes = if case.path == DataPath::ActionSet { 1 } else { 1 + dice.below(4) };
        let slots = 1 + dice.below(2);
        let count = if case.path == DataPath::ActionSet { 1 } else { (nodes * slots * case.queue).max(1) };
        let shares: Vec<f64> = (0..count).map(|_| dice.around(1.0, 1.0)).collect();
        let all: f64 = shares.iter().sum();
        let fixed = match case.path {
            DataPath::DataMovement => dice.around(25.0, 0.4),
            DataPath::Csi | DataPath::Plugins => dice.around(12.0, 0.6),
            _ => dice.around(4.0, 0.5),
        };
        let speed = dice.around(60e6, 0.8);
        let volumes = shares.iter().enumerate().map(|(index, share)| {
            let bytes = (case.bytes * share / all).max(1000.0);
            Volume {
                node: index % nodes,
                bytes,
                capacity: bytes / dice.between(0.1, 0.95),
                before: dice.around(fixed, 0.3),
                after: dice.around(1.0, 0.5),
                limit: dice.around(speed, 0.4),
                changed: dice.between(0.02, 0.2),
            }
        });
        Self {
            volumes: volumes.collect(),
            slots,
            items: dice.around(2000.0, 1.0).round(),
            items_per_second: dice.around(500.0, 0.5),
            speeds: (0..nodes).map(|_| dice.around(speed, 0.3)).collect(),
            wander: dice.between(0.05, 0.35),
            fixed,
        }
    }

    pub fn nodes(&self) -> usize {
        self.speeds.len()
    }

    /// A usual duration of a step of this cluster that moves no bytes.
    pub fn usual_step(&self) -> f64 {
        self.fixed
    }
}

/// The speeds of one run, as they wander.
#[derive(Debug)]
pub struct Weather {
    dice: Dice,
    /// The logarithm of how much faster each node is now.
    now: Vec<f64>,
    wander: f64,
    day: f64,
}

impl Weather {
    pub fn new(cluster: &Cluster, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let day = dice.around(1.0, 0.08);
        Self { now: vec![0.0; cluster.nodes()], wander: cluster.wander, dice, day }
    }

    /// Lets seconds pass. A deviation is forgotten within minutes.
    pub fn pass(&mut self, seconds: f64) {
        let kept = (-seconds / 90.0).exp();
        for node in &mut self.now {
            *node = *node * kept + self.wander * (1.0 - kept * kept).sqrt() * self.dice.normal();
        }
    }

    /// Bytes a second of a volume, with so many at work on its node.
    pub fn speed(&self, cluster: &Cluster, volume: &Volume, beside: usize) -> f64 {
        let beside = f64::from(u32::try_from(beside.max(1)).unwrap_or(1));
        // Two at once are faster than one, but not twice as fast.
        let share = cluster.speeds[volume.node] * beside.powf(0.7) / beside;
        share.min(volume.limit) * self.now[volume.node].exp() * self.day
    }

    pub fn around(&mut self, median: f64, deviation: f64) -> f64 {
        self.dice.around(median, deviation)
    }

    pub fn noisy(&mut self) -> f64 {
        self.dice.around(1.0, self.wander)
    }
}
