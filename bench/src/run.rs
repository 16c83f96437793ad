//! A run: the servers one after the other, as often as the options say. The repeats take turns, so that a drift of the machine meets
//! all servers alike.

use crate::load::{self, Figures, Processes, Server};
use crate::plan::Step;
use crate::postgres::Postgres;
use crate::table::{self, Repeat, Run};
use crate::target::{Ports, RunningServer, Target, pin_driver};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// The folder of the figures and the logs.
const OUT: &str = "target/bench";

/// Runs these steps against these servers, prints the table, and stores the figures. Without the model among the servers
/// the table has no added latencies.
pub(crate) async fn run(quick: bool, steps: Vec<Step>, targets: &[&Target], repeats: u32) -> Result<()> {
    pin_driver().await?;
    rlimit::increase_nofile_limit(u64::MAX)?;
    let out = Path::new(OUT);
    fs::create_dir_all(out).context(OUT)?;
    let mut ports = Ports::default();
    let model = RunningServer::model(&mut ports, out).await?;
    let postgres = Postgres::start(ports.free()?).await?;
    let progress = Progress::new(&steps, targets, repeats);
    let mut bench = Bench { ports, model, postgres, steps, progress };
    let measured = bench.repeats(targets, repeats, out).await;
    bench.progress.bar.finish_and_clear();
    bench.postgres.end().await?;
    let measured = measured?;
    println!("{}", table::table(&measured));
    for fault in table::faults(&measured) {
        println!("{fault}");
    }
    let figures = out.join("figures.json");
    let document = json!({ "quick": quick, "repeats": measured });
    fs::write(&figures, serde_json::to_vec_pretty(&document)?)?;
    println!("all figures: {}; the logs of the servers are beside it", figures.display());
    Ok(())
}

struct Bench {
    ports: Ports,
    model: RunningServer,
    postgres: Postgres,
    steps: Vec<Step>,
    progress: Progress,
}

impl Bench {
    async fn repeats(&mut self, targets: &[&Target], count: u32, out: &Path) -> Result<Vec<Repeat>> {
        let mut repeats = Vec::new();
        for n in 1..=count {
            let mut repeat = Repeat::new();
            for &target in targets {
                self.progress.label = format!("repeat {n} of {count}, {}", target.name);
                let run = self.measure(target, out).await.with_context(|| target.name)?;
                repeat.insert(target.name, run);
            }
            repeats.push(repeat);
        }
        Ok(repeats)
    }

    /// Measures one server, with a new process and a new database.
    async fn measure(&mut self, target: &Target, out: &Path) -> Result<Run> {
        let model = self.model.pid()?;
        if target.is_upstream() {
            let server = self.model.server(target.wire);
            return self.steps(target, server, model).await;
        }
        let database = self.postgres.create().await?;
        let url = self.postgres.url(&database);
        let running = target.start(&mut self.ports, &self.model.model_url(), &url, out).await?;
        let mut run = self.steps(target, running.server(target.wire), running.pid()?).await?;
        if target.is_backend() {
            run.effects = Some(self.postgres.effects(&database).await?);
        }
        running.end().await?;
        self.postgres.drop(&database).await?;
        Ok(run)
    }

    async fn steps(&mut self, target: &Target, server: Server, process: u32) -> Result<Run> {
        let processes = Processes { server: process, postgres: self.postgres.pid, model: self.model.pid()? };
        let mut run = Run::default();
        for step in self.steps.iter().filter(|step| target.is_backend() || step.work.suits_floors()) {
            self.progress.step(step);
            let before = self.postgres.log_position().await?;
            let figures = load::run(server, *step, processes).await?;
            let log_bytes = self.postgres.log_position().await? - before;
            run.figures.push(Figures { log_bytes, ..figures });
            self.progress.done(step);
        }
        Ok(run)
    }
}

/// A bar on a terminal, or else a line for each step.
struct Progress {
    bar: ProgressBar,
    label: String,
}

impl Progress {
    fn new(steps: &[Step], targets: &[&Target], repeats: u32) -> Self {
        let time = |target: &&Target| -> Duration {
            let steps = steps.iter().filter(|step| target.is_backend() || step.work.suits_floors());
            steps.map(|step| step.work.duration()).sum()
        };
        let all = targets.iter().map(time).sum::<Duration>() * repeats;
        let bar = ProgressBar::new(all.as_secs());
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {pos} of about {len} s {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, label: String::new() }
    }

    fn step(&self, step: &Step) {
        let message = format!("{}: {}", self.label, step.name);
        if !std::io::stderr().is_terminal() {
            eprintln!("{message}");
        }
        self.bar.set_message(message);
    }

    fn done(&self, step: &Step) {
        self.bar.inc(step.work.duration().as_secs());
    }
}
