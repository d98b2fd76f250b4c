//! The benchmark: restic, kopia and ours take turns on the same data, in a directory and on an S3 server behind a modelled line
//! (round trip, rate of each connection, slow start, cost of connecting), and on a tree of a million files. `make bench-repository` runs it; it stops by itself and prints tables.
//!
//! `cargo run --release -p plimsoll-repository --example compare -- [--rounds 3] [--scale 1] [--work DIR]
//!  [--only directory,s3,many] [--programs plimsoll,restic,kopia] [--round-trip 50] [--rate 80]`
//!
//! `--round-trip` is in milliseconds, `--rate` in MiB/s for each connection.
//!
//! Programs are looked for where `hack/install` puts them and in the path; our own is the example `repository`, a process
//! like the others, so that starting up counts. Figures are medians; only ratios of one run mean anything.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

mod data;
mod peers;
mod remote_server;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data::Scale;
use peers::{Peer, RepositoryStore, Step, find};
use plimsoll_testkit::memory;
use remote_server::{Line, RemoteServer};
use table::Table;

type Failure = Box<dyn std::error::Error>;

/// The options, each with a value.
const OPTIONS: [&str; 7] = ["--rounds", "--scale", "--work", "--only", "--programs", "--round-trip", "--rate"];

struct Bench {
    work: PathBuf,
    /// The programs to compare.
    programs: String,
    rounds: usize,
    scale: Scale,
    /// The line to the S3 server.
    line: Line,
}

impl Bench {
    fn peers(&self, store: &RepositoryStore) -> Result<Vec<Peer>, Failure> {
        let own = std::env::current_exe()?.with_file_name("repository");
        let known = [("plimsoll", Some(own)), ("restic", find("restic")), ("kopia", find("kopia"))];
        let peer = |(name, program): (&'static str, Option<PathBuf>)| {
            let found = program.filter(|program| program.is_file());
            if found.is_none() {
                eprintln!("{name} is not installed: skipped");
            }
            Some(Peer { name, program: found?, work: self.work.clone(), store: store.clone() })
        };
        let is_asked_for = |name: &str| self.programs.split(',').any(|program| program == name);
        Ok(known.into_iter().filter(|(name, _)| is_asked_for(name)).filter_map(peer).collect())
    }

    /// Runs all steps with all programs in turn; another one starts in every round.
    fn measure(
        &self,
        table: &mut Table,
        peers: &[Peer],
        steps: &[Step],
        data: &Path,
        round: usize,
    ) -> Result<(), Failure> {
        let (before, first) = peers.split_at(round % peers.len().max(1));
        for peer in first.iter().chain(before) {
            for step in steps {
                memory::fill_page_cache(&self.work, &peer.reads(*step, data))?;
                eprintln!("{} {}", peer.name, step.name());
                table.add(*step, peer.name, peer.measure(*step, data)?);
            }
        }
        Ok(())
    }

    /// Describes the amount of data and the rounds.
    fn extent(&self) -> String {
        let part = if self.scale.0 == 1 { "all of it".into() } else { format!("1/{} of it", self.scale.0) };
        format!("{part}, rounds: {}", self.rounds)
    }

    /// Runs all steps with all programs in turn.
    fn standard(&self, peers: &[Peer], title: &str) -> Result<(), Failure> {
        let mut table = Table::default();
        let data = self.work.join("data");
        for round in 0..self.rounds {
            eprintln!("{title}: round {} of {}", round + 1, self.rounds);
            // New data in each round, because a tenth was changed.
            let _ = fs::remove_dir_all(&data);
            data::make(&data, self.scale)?;
            for peer in peers {
                peer.prepare()?;
            }
            self.measure(&mut table, peers, &[Step::First, Step::Again], &data, round)?;
            data::change(&data, round as u64)?;
            // Delete nothing before a restore: a file system may be slow for a minute afterwards.
            self.measure(&mut table, peers, &[Step::Changed, Step::Restore, Step::Check], &data, round)?;
        }
        peers.iter().for_each(Peer::clean);
        table.print(&format!("{title}, {}", self.extent()), true);
        Ok(())
    }

    fn directory(&self) -> Result<(), Failure> {
        self.standard(&self.peers(&RepositoryStore::Directory)?, "standard data, a directory")
    }

    fn s3(&self) -> Result<(), Failure> {
        let Some(program) = find("versitygw") else {
            eprintln!("versitygw is not installed: S3 skipped");
            return Ok(());
        };
        let folder = self.work.join("s3");
        let _ = fs::remove_dir_all(&folder);
        let server = RemoteServer::start(&program, &folder, self.line)?;
        let peers =
            self.peers(&RepositoryStore::S3 { url: server.url(), process: server.process(), folder: folder.clone() })?;
        let Line { round_trip, rate } = self.line;
        let (milliseconds, rate) = (round_trip.as_millis(), rate / f64::from(1 << 20));
        let title = format!("standard data, S3 with {milliseconds} ms and {rate:.0} MiB/s for each connection");
        self.standard(&peers, &title)?;
        drop(server);
        let _ = fs::remove_dir_all(&folder);
        Ok(())
    }

    fn many(&self) -> Result<(), Failure> {
        let data = self.work.join("many");
        let _ = fs::remove_dir_all(&data);
        eprintln!("creating many files");
        let files = data::make_many(&data, self.scale)?;
        let peers = self.peers(&RepositoryStore::Directory)?;
        let mut table = Table::default();
        for peer in &peers {
            peer.prepare()?;
        }
        self.measure(&mut table, &peers, &[Step::First, Step::Again], &data, 0)?;
        peers.iter().for_each(Peer::clean);
        table.print(&format!("{files} files of five bytes, a directory, one round"), false);
        let _ = fs::remove_dir_all(&data);
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let Some(word) = arguments.iter().step_by(2).find(|word| !OPTIONS.contains(&word.as_str())) {
        return Err(format!("unknown option {word:?}: {}, each with a value", OPTIONS.join(", ")).into());
    }
    let option =
        |name: &str| arguments.iter().position(|word| word == name).and_then(|at| arguments.get(at + 1)).cloned();
    let number = |name: &str, usual: usize| option(name).map_or(Ok(usual), |value| value.parse());
    let work = option("--work").map_or_else(|| std::env::temp_dir().join("plimsoll-bench"), PathBuf::from);
    let (rounds, scale) = (number("--rounds", 3)?, Scale(number("--scale", 1)?.clamp(1, 100)));
    let only = option("--only").unwrap_or_else(|| "directory,s3,many".into());
    let programs = option("--programs").unwrap_or_else(|| "plimsoll,restic,kopia".into());
    let (round_trip, rate) = (number("--round-trip", 50)?, number("--rate", 80)?);
    let line = Line {
        round_trip: Duration::from_millis(round_trip.try_into()?),
        rate: f64::from(u32::try_from(rate)?) * f64::from(1 << 20),
    };
    let bench = Bench { work, programs, rounds, scale, line };
    fs::create_dir_all(&bench.work)?;
    for scenario in only.split(',') {
        match scenario {
            "directory" => bench.directory()?,
            "s3" => bench.s3()?,
            "many" => bench.many()?,
            other => return Err(format!("unknown scenario {other:?}: directory, s3, many").into()),
        }
    }
    let _ = fs::remove_dir_all(bench.work.join("data"));
    let _ = fs::remove_file(bench.work.join("hole"));
    Ok(())
}
