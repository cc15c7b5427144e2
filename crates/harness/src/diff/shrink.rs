//! Makes a failing sequence small: drops steps ("ddmin", Zeller and Hildebrandt 2002), takes pipelines apart, then
//! drops and shortens arguments, as long as it still fails. The module knows nothing of servers: its caller says
//! whether a sequence fails.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::sequence::{Sequence, Step};

/// The bounds of shrinking, in trials and in time; the smallest sequence by then is the result.
const TRIALS_MAX: u32 = 3000;
const TIME_MAX: Duration = Duration::from_secs(60);

/// Returns the smallest sequence found for which `fails` is true, beginning with one for which it is.
pub fn shrink(sequence: Sequence, fails: impl FnMut(&Sequence) -> Result<bool>) -> Result<Sequence> {
    let mut shrinker = Shrinker { best: sequence, fails, trials: 0, begin: Instant::now() };
    shrinker.drop_steps()?;
    shrinker.take_pipelines_apart()?;
    loop {
        let before = shrinker.best.clone();
        shrinker.drop_steps()?;
        shrinker.simplify_commands()?;
        if shrinker.best == before || shrinker.spent() {
            return Ok(shrinker.best);
        }
    }
}

struct Shrinker<F> {
    best: Sequence,
    fails: F,
    trials: u32,
    begin: Instant,
}

impl<F: FnMut(&Sequence) -> Result<bool>> Shrinker<F> {
    fn spent(&self) -> bool {
        self.trials >= TRIALS_MAX || self.begin.elapsed() > TIME_MAX
    }

    /// Takes a candidate over if it fails too.
    fn offer(&mut self, candidate: Sequence) -> Result<bool> {
        if self.spent() {
            return Ok(false);
        }
        self.trials += 1;
        let fails = (self.fails)(&candidate)?;
        if fails {
            self.best = candidate;
        }
        Ok(fails)
    }

    /// Drops runs of steps, halving their length down to one.
    fn drop_steps(&mut self) -> Result<()> {
        let mut length = (self.best.len() / 2).max(1);
        loop {
            let mut at = 0;
            while at < self.best.len() && self.best.len() > 1 {
                let mut candidate = self.best.clone();
                candidate.drain(at..(at + length).min(candidate.len()));
                if !self.offer(candidate)? {
                    at += length;
                }
            }
            if length == 1 || self.spent() {
                return Ok(());
            }
            length /= 2;
        }
    }

    /// Sends one command per step, if the failure does not need a pipeline; else drops as many of its commands as
    /// possible.
    fn take_pipelines_apart(&mut self) -> Result<()> {
        let apart = self.best.iter().flat_map(|step| match step {
            Step::Send { connection, commands } => {
                commands.iter().map(|c| Step::Send { connection: *connection, commands: vec![c.clone()] }).collect()
            }
            other => vec![other.clone()],
        });
        let apart = apart.collect();
        self.offer(apart)?;
        Ok(())
    }

    fn simplify_commands(&mut self) -> Result<()> {
        let mut at = 0;
        while at < self.best.len() {
            for command in (0..commands_in(&self.best[at])).rev() {
                self.simplify_command(at, command)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Drops a command of a pipeline, or arguments of it, or halves its arguments.
    fn simplify_command(&mut self, step: usize, command: usize) -> Result<()> {
        if commands_in(&self.best[step]) > 1 && self.try_edit(step, |commands| drop(commands.remove(command)))? {
            return Ok(());
        }
        let arguments = match &self.best[step] {
            // A shorter SHUTDOWN might be one that stops the servers.
            Step::Send { commands, .. } if !commands[command][0].eq_ignore_ascii_case(b"shutdown") => {
                commands[command].len()
            }
            _ => return Ok(()),
        };
        for argument in (1..arguments).rev() {
            if self.try_edit(step, |commands| drop(commands[command].remove(argument)))? {
                continue;
            }
            while self.try_edit(step, |commands| {
                let bytes = &mut commands[command][argument];
                bytes.truncate(bytes.len() / 2);
            })? {}
            if self.argument_len(step, command, argument) > 8 {
                self.try_edit(step, |commands| commands[command][argument].fill(b'x'))?;
            }
            while self.argument_len(step, command, argument) > 1
                && self.try_edit(step, |commands| {
                    commands[command][argument].pop();
                })?
            {}
        }
        Ok(())
    }

    fn argument_len(&self, step: usize, command: usize, argument: usize) -> usize {
        match &self.best[step] {
            Step::Send { commands, .. } => commands[command][argument].len(),
            _ => 0,
        }
    }

    /// Offers the sequence with one step's commands changed; returns false if that changes nothing.
    fn try_edit(&mut self, step: usize, edit: impl FnOnce(&mut Vec<Vec<Vec<u8>>>)) -> Result<bool> {
        let mut candidate = self.best.clone();
        let Step::Send { commands, .. } = &mut candidate[step] else { return Ok(false) };
        edit(commands);
        if candidate == self.best { Ok(false) } else { self.offer(candidate) }
    }
}

fn commands_in(step: &Step) -> usize {
    match step {
        Step::Send { commands, .. } => commands.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::generate::generate;
    use crate::diff::sequence::{from_text, to_text};

    #[test]
    fn only_what_the_failure_needs_remains() {
        let mut sequence = generate(5, 1);
        sequence.extend(from_text("SET needle 1 EX 100\n#@ pipeline 2\nPING\nGET needle hay").expect("well formed"));
        sequence.extend(generate(5, 2));
        let has = |sequence: &Sequence, name: &[u8]| {
            let mut commands = sequence.iter().flat_map(|step| match step {
                Step::Send { commands, .. } => commands.clone(),
                _ => vec![],
            });
            commands.any(|c| c[0] == name && c.get(1).is_some_and(|a| a.starts_with(b"need")))
        };
        let small = shrink(sequence, |s| Ok(has(s, b"SET") && has(s, b"GET"))).expect("nothing fails here");
        assert_eq!(to_text(&small), "SET nee\nGET nee\n".replace("nee", "need"));
    }
}
