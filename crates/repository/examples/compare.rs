//! The benchmark: the standard data, restic and kopia beside ours in the same run, and the ratios.
//!
//! `cargo run --release -p plimsoll-repository --example compare -- [--rounds 3] [--work DIR] [--data DIR]`
//!
//! Programs are looked for in `~/.cache/plimsoll/bin` and in the path; our own is the example `repository`, a process
//! like the others, so that starting up counts. Times are wall-clock medians; only ratios of one run mean anything.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type Failure = Box<dyn std::error::Error>;

const PASSWORD: &str = "benchmark";
const WORK: [&str; 4] = ["backup", "again", "restore", "check"];

/// One measured process.
#[derive(Clone, Copy, Default)]
struct Sample {
    wall: f64,
    cpu: f64,
    memory: f64,
}

/// One of the programs compared.
struct Peer {
    name: &'static str,
    program: PathBuf,
    work: PathBuf,
}

impl Peer {
    fn repository(&self) -> PathBuf {
        self.work.join(format!("{}-repository", self.name))
    }

    fn target(&self) -> PathBuf {
        self.work.join(format!("{}-restored", self.name))
    }

    fn config(&self) -> PathBuf {
        self.work.join("kopia.config")
    }

    /// Makes an empty repository.
    fn prepare(&self) -> Result<(), Failure> {
        for path in [self.repository(), self.target()] {
            let _ = fs::remove_dir_all(path);
        }
        let arguments = match self.name {
            "plimsoll" => self.ours("init", &[]),
            "restic" => Self::arguments(&["init", "--quiet"], &[]),
            _ => {
                fs::create_dir_all(self.repository())?;
                Self::arguments(&["repository", "create", "filesystem", "--path"], &[self.repository().into()])
            }
        };
        self.command(&self.program, &arguments).status()?;
        Ok(())
    }

    fn step(&self, step: &str, data: &Path) -> Vec<OsString> {
        let (data, target) = (data.as_os_str().to_owned(), self.target().into_os_string());
        match (self.name, step) {
            ("plimsoll", "backup" | "again") => self.ours("backup", &[data]),
            ("plimsoll", "restore") => self.ours("restore", &["latest".into(), target]),
            ("plimsoll", _) => self.ours("check", &[]),
            ("restic", "backup" | "again") => Self::arguments(&["backup", "--quiet"], &[data]),
            ("restic", "restore") => Self::arguments(&["restore", "--quiet", "latest", "--target"], &[target]),
            ("restic", _) => Self::arguments(&["check", "--quiet", "--read-data"], &[]),
            (_, "backup" | "again") => Self::arguments(&["snapshot", "create", "--no-progress"], &[data]),
            (_, "restore") => Self::arguments(&["snapshot", "restore", "--no-progress"], &[data, target]),
            _ => Self::arguments(&["snapshot", "verify", "--verify-files-percent=100", "--no-progress"], &[]),
        }
    }

    fn ours(&self, command: &str, rest: &[OsString]) -> Vec<OsString> {
        let mut arguments = vec![command.into(), self.repository().into_os_string(), PASSWORD.into()];
        arguments.extend_from_slice(rest);
        arguments
    }

    fn arguments(words: &[&str], rest: &[OsString]) -> Vec<OsString> {
        words.iter().map(OsString::from).chain(rest.iter().cloned()).collect()
    }

    fn command(&self, program: &Path, arguments: &[OsString]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("TZ", "UTC")
            .env("RESTIC_PASSWORD", PASSWORD)
            .env("RESTIC_REPOSITORY", self.repository())
            .env("RESTIC_CACHE_DIR", self.work.join("restic-cache"))
            .env("KOPIA_PASSWORD", PASSWORD)
            .env("KOPIA_CONFIG_PATH", self.config())
            .env("KOPIA_CACHE_DIRECTORY", self.work.join("kopia-cache"))
            .env("KOPIA_CHECK_FOR_UPDATES", "false")
            .stdout(Stdio::null());
        command
    }

    /// Runs one step under `time`, which knows what a process used.
    fn measure(&self, step: &str, data: &Path) -> Result<Sample, Failure> {
        if step == "restore" {
            let _ = fs::remove_dir_all(self.target());
        }
        let mut arguments: Vec<OsString> =
            vec!["-f".into(), "measured %e %U %S %M".into(), self.program.clone().into()];
        arguments.extend(self.step(step, data));
        let output = self.command(Path::new("/usr/bin/time"), &arguments).stderr(Stdio::piped()).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(format!("{} {step}: {text}", self.name).into());
        }
        let line = text.lines().rev().find_map(|line| line.strip_prefix("measured ")).ok_or("time said nothing")?;
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [wall, user, system, memory] = numbers[..] else { return Err("time said something else".into()) };
        Ok(Sample { wall, cpu: user + system, memory: memory / 1000.0 })
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn find(name: &str) -> Option<PathBuf> {
    let installed = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/plimsoll/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = installed.into_iter().chain(std::env::split_paths(&path).collect::<Vec<_>>());
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// 20,000 small text files and eleven large ones that do not compress.
fn make_data(root: &Path) -> Result<(), Failure> {
    let mut random = Random(7);
    let words: Vec<_> = (0..4000).map(|_| format!("{:x}", random.next() >> 24)).collect();
    let text: String = (0..400_000).flat_map(|_| [words[random.below(words.len())].as_str(), " "]).collect();
    for folder in 0..200 {
        let folder = root.join(format!("small/{folder:03}"));
        fs::create_dir_all(&folder)?;
        for file in 0..100 {
            let size = random.exponential(18_000.0).min(text.len() / 2);
            let start = random.below(text.len() - size);
            fs::write(folder.join(format!("{file:03}.txt")), &text.as_bytes()[start..start + size])?;
        }
    }
    fs::create_dir_all(root.join("large"))?;
    for file in 0..11 {
        let mut out = fs::File::create(root.join(format!("large/{file}")))?;
        for _ in 0..160 {
            let block: Vec<u8> = (0..1 << 17).flat_map(|_| random.next().to_le_bytes()).collect();
            out.write_all(&block)?;
        }
    }
    Ok(())
}

/// Reproducible noise.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap_or(0) % limit.max(1)
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
    fn exponential(&mut self, mean: f64) -> usize {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (-mean * (1.0 - uniform).ln()) as usize
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().collect();
    let option =
        |name: &str| arguments.iter().position(|word| word == name).and_then(|at| arguments.get(at + 1)).cloned();
    let rounds: usize = option("--rounds").map_or(Ok(3), |rounds| rounds.parse())?;
    let work = option("--work").map_or_else(|| std::env::temp_dir().join("plimsoll-bench"), PathBuf::from);
    fs::create_dir_all(&work)?;
    let data = option("--data").map_or_else(|| work.join("data"), PathBuf::from);
    if !data.exists() {
        eprintln!("making the data in {}", data.display());
        make_data(&data)?;
    }
    let own = std::env::current_exe()?.with_file_name("repository");
    let known = [("plimsoll", Some(own)), ("restic", find("restic")), ("kopia", find("kopia"))];
    let peers: Vec<_> = known
        .into_iter()
        .filter_map(|(name, program)| Some(Peer { name, program: program?, work: work.clone() }))
        .collect();
    let mut samples: BTreeMap<(&str, &str), Vec<Sample>> = BTreeMap::new();
    for round in 0..rounds {
        for peer in &peers {
            peer.prepare()?;
            for step in WORK {
                eprintln!("round {}: {} {step}", round + 1, peer.name);
                samples.entry((step, peer.name)).or_default().push(peer.measure(step, &data)?);
            }
        }
    }
    print_table(&samples, &peers);
    Ok(())
}

fn print_table(samples: &BTreeMap<(&str, &str), Vec<Sample>>, peers: &[Peer]) {
    println!(
        "{:8} {:10} {:>8} {:>8} {:>8} {:>12} {:>12}",
        "work", "program", "wall s", "CPU s", "MB", "wall/ours", "CPU/ours"
    );
    for step in WORK {
        let middle =
            |name: &str, what: fn(&Sample) -> f64| median(samples.get(&(step, name)).into_iter().flatten().map(what));
        for peer in peers {
            let (wall, cpu) = (middle(peer.name, |s| s.wall), middle(peer.name, |s| s.cpu));
            let memory = median(samples.get(&(step, peer.name)).into_iter().flatten().map(|s| s.memory));
            let (own_wall, own_cpu) = (middle("plimsoll", |s| s.wall), middle("plimsoll", |s| s.cpu));
            println!(
                "{step:8} {:10} {wall:8.2} {cpu:8.2} {memory:8.0} {:11.2}x {:11.2}x",
                peer.name,
                wall / own_wall.max(0.01),
                cpu / own_cpu.max(0.01)
            );
        }
    }
}
