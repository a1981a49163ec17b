//! One Envoy as a child process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::bootstrap::Bootstrap;
use crate::envoy::Envoy;
use crate::http::{Connection, fetch};
use crate::workspace::root;

/// A running Envoy. Dropping it kills the process.
#[derive(Debug)]
pub struct Proxy {
    /// Dropped first, so that it never ends another process of the same number.
    _guard: Child,
    child: Child,
    admin: SocketAddr,
    log: PathBuf,
}

/// How to start an Envoy.
#[derive(Clone, Debug, Default)]
pub struct ProxyOptions {
    /// Worker threads; `None` for as many as the machine has.
    pub concurrency: Option<u32>,
    /// Where the configuration and the log are written; made when missing.
    pub directory: PathBuf,
    /// More of Envoy's own arguments.
    pub arguments: &'static [&'static str],
}

impl Proxy {
    /// Starts an Envoy and waits until it serves.
    pub async fn start(
        envoy: &Envoy,
        bootstrap: &Bootstrap,
        options: &ProxyOptions,
    ) -> Result<Self> {
        let directory = &options.directory;
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let config = directory.join("envoy.json");
        let log = directory.join("envoy.log");
        bootstrap.write(&config)?;
        let mut command = command(envoy, &config, &File::create(&log)?)?;
        if let Some(concurrency) = options.concurrency {
            command.args(["--concurrency", &concurrency.to_string()]);
        }
        command.args(options.arguments);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {envoy}"))?;
        let pid = child.id().context("Envoy ended at start")?;
        let mut proxy = Self {
            _guard: end_with_us(pid)?,
            child,
            admin: bootstrap.admin_address()?,
            log,
        };
        proxy.wait_until_ready().await?;
        Ok(proxy)
    }

    /// Waits for the process to end, which only happens by itself when something is wrong.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.context("cannot wait for Envoy")
    }

    /// Ends the process: in order by its admin interface, by force after a few seconds.
    pub async fn stop(mut self) -> Result<()> {
        let asked = async {
            let mut connection = Connection::open(self.admin).await?;
            connection.request("POST", "/quitquitquit", &[], b"").await
        };
        if asked.await.is_err() || timeout(STOP_LIMIT, self.child.wait()).await.is_err() {
            self.child.kill().await.context("cannot end Envoy")?;
        }
        Ok(())
    }

    /// The number of the process; `None` once it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where the admin interface listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Where the log is written, access log included.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of the log.
    pub fn last_lines(&self, count: usize) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// What Envoy calls critical in its log, which names the cause, else the last lines.
    fn why_it_ended(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let critical: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("[critical]"))
            .collect();
        if critical.is_empty() {
            return self.last_lines(10);
        }
        critical.join("\n")
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("Envoy ended at start ({status}):\n{}", self.why_it_ended());
            }
            let ready = fetch(self.admin, "/ready").await;
            if ready.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let lines = self.last_lines(10);
                bail!("Envoy was not ready within {START_LIMIT:?}:\n{lines}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Starts a process that ends `pid` once this process has ended, by whatever signal.
///
/// It waits for the end of its input, which nobody writes and which the kernel closes for us.
fn end_with_us(pid: u32) -> Result<Child> {
    Command::new("sh")
        .args(["-c", "read -r _; kill \"$1\"", "sh", &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start sh")
}

/// Asks an Envoy whether it would take a configuration; the error carries what it printed.
pub async fn validate(envoy: &Envoy, bootstrap: &Bootstrap, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let config = directory.join("validate.json");
    let log = directory.join("validate.log");
    bootstrap.write(&config)?;
    let mut command = command(envoy, &config, &File::create(&log)?)?;
    let status = command.args(["--mode", "validate"]).status().await?;
    if !status.success() {
        bail!("{}", fs::read_to_string(&log)?);
    }
    Ok(())
}

fn command(envoy: &Envoy, config: &Path, log: &File) -> Result<Command> {
    let mut command = Command::new(&envoy.path);
    command
        .arg("--config-path")
        .arg(config)
        // No shared memory, and no clash with an Envoy of somebody else.
        .arg("--disable-hot-restart")
        // A line of the access log is there soon after its request.
        .args(["--file-flush-interval-msec", "100"])
        // Relative paths in a configuration are relative to the root.
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        // Ctrl-C in a terminal reaches the whole group; we end Envoy in order ourselves.
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// How long a start may take: loading the module blocks for about a second, on a busy machine more.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long Envoy may take to end in order.
const STOP_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_ends_when_nobody_holds_its_guards_input() -> Result<()> {
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("60").kill_on_drop(true).spawn()
        };
        let mut child = sleep()?;
        let mut guard = end_with_us(child.id().context("no process")?)?;
        let is_alive = timeout(Duration::from_millis(300), child.wait()).await;
        assert!(is_alive.is_err(), "it ended although its guard is held");
        drop(guard.stdin.take());
        let status = timeout(STOP_LIMIT, child.wait()).await??;
        assert!(!status.success(), "{status}");
        Ok(())
    }
}
