//! redis-benchmark as a load: started, and its line of figures read.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::compare::Measured;

/// The requests that redis-benchmark is to send.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    pub port: u16,
    pub requests: u64,
    pub pipeline: u32,
    /// The key space.
    pub keys: u64,
    pub value_bytes: u32,
    pub connections: u32,
    /// The core that redis-benchmark is confined to.
    pub cpu: Option<u32>,
    /// The arguments that choose the commands: `-t get`, or words.
    pub arguments: &'a [&'a str],
    /// The certificate to trust, where the port speaks TLS.
    pub cert: Option<&'a Path>,
}

impl Load<'_> {
    /// Runs redis-benchmark; CPU time and flushes are the server's and not measured here.
    pub fn run(&self) -> Result<Measured> {
        let pinned = self.cpu.map(|cpu| ["taskset".to_string(), "-c".to_string(), cpu.to_string()]);
        let mut words: Vec<String> = pinned.into_iter().flatten().collect();
        words.extend(["redis-benchmark", "--csv"].map(str::to_string));
        let numbers = [
            ("-c", self.connections.into()),
            ("-p", self.port.into()),
            ("-n", self.requests),
            ("-P", self.pipeline.into()),
            ("-r", self.keys),
            ("-d", self.value_bytes.into()),
        ];
        for (name, number) in numbers {
            words.extend([name.to_string(), number.to_string()]);
        }
        if let Some(cert) = self.cert {
            words.extend(["--tls", "--cacert", &cert.to_string_lossy()].map(str::to_string));
        }
        let output = Command::new(&words[0])
            .args(&words[1..])
            .args(self.arguments)
            .output()
            .with_context(|| format!("starting {}", words.join(" ")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().filter(|line| line.starts_with('"') && !line.contains("latency"));
        let Some(line) = line.filter(|_| output.status.success()) else {
            bail!("redis-benchmark {}: {text} {}", output.status, String::from_utf8_lossy(&output.stderr));
        };
        figures(line)
    }
}

/// Reads a line of CSV: the name, requests a second, and the average, least, p50, p95, p99 and greatest milliseconds.
fn figures(line: &str) -> Result<Measured> {
    let fields: Vec<&str> = line.trim_matches('"').split("\",\"").collect();
    let figure =
        |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).with_context(|| format!("figures: {line}"));
    Ok(Measured { rate: figure(1)?, p50_ms: figure(4)?, p99_ms: figure(6)?, ..Measured::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_read_by_their_place() {
        let line = "\"SET\",\"90909.09\",\"0.313\",\"0.112\",\"0.295\",\"0.463\",\"0.567\",\"0.671\"";
        let measured = figures(line).expect("a line of redis-benchmark 7.0");
        assert_eq!((measured.rate, measured.p50_ms, measured.p99_ms), (90909.09, 0.295, 0.567));
        assert!(figures("\"SET\",\"many\"").is_err());
    }
}
