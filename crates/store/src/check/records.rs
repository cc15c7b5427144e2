//! The log, read from its first record to its last: every checksum, every index, and the rows as the records above the
//! applied index make them.

use super::{Broken, Findings, Kind, Meter, Stored, applied, note};
use crate::apply::parse;
use crate::base::BaseError;
use crate::databases::{CountsAt, dead_row};
use crate::memtable::Change;
use crate::row::{RowKey, Space, space_of};
use haypile_log::{
    Cut, Damage, DumpEntry, Effect, HistoryStart, Index, OpenError, Options, RECORD_HEADER_BYTES, dump, inspect,
};
use std::collections::BTreeMap;

/// The changes that the log makes above the base.
#[derive(Debug, Default)]
pub struct Above {
    /// Rows above the base; None is a deleted one.
    pub(super) rows: BTreeMap<RowKey, Option<Vec<u8>>>,
    /// Whether the base knows a space to be dead: the base may then lack rows that records change.
    dead: BTreeMap<Space, bool>,
    /// The changes of the counters of spaces.
    pub(super) counts: BTreeMap<u32, CountsAt>,
    pub records: u64,
    /// The last record that was read.
    pub last: Index,
    /// The applied index of the base.
    pub applied: Index,
    /// The bytes that an open would cut off behind the last record.
    pub cut: Option<Cut>,
}

impl Above {
    /// Reads the whole log. Of a damaged log, the rows are those of the last record before the damage.
    pub fn read(
        source: &Options,
        base: &dyn Stored,
        meter: &Meter,
        findings: &mut Findings<'_>,
    ) -> Result<Above, Broken> {
        let stamp = applied(base).map_err(|error| note(error, findings))?.unwrap_or_default();
        let mut above = Above { applied: stamp.index, last: stamp.index, ..Above::default() };
        let opened = inspect(source, stamp);
        meter.begin(opened.as_ref().map_or(0, |opened| opened.bytes), base);
        let lacking = opened.as_ref().ok().and_then(|opened| opened.lacking);
        let damages = above.read_records(source, lacking, base, meter, findings)?;
        match opened {
            Ok(opened) => above.cut = opened.cut,
            // Damage that only an open sees: segments that are not there, records that a backup was made with.
            Err(OpenError::Damage(damage)) => {
                if !damages.iter().any(|known| (&known.file, known.offset) == (&damage.file, damage.offset)) {
                    add(&damage, Kind::LogAndBase, findings);
                }
            }
            Err(error @ OpenError::Mixed { .. }) => findings.add(Kind::LogAndBase, "log", error),
            Err(error) => return Err(unreadable(&error)),
        }
        Ok(above)
    }

    /// Reads the records. `lacking` is the first history that begins with loaded data which the base does not have.
    fn read_records(
        &mut self,
        source: &Options,
        mut lacking: Option<HistoryStart>,
        base: &dyn Stored,
        meter: &Meter,
        findings: &mut Findings<'_>,
    ) -> Result<Vec<Damage>, Broken> {
        let mut damages = Vec::new();
        for entry in dump(&*source.files, &source.dir).map_err(|error| unreadable(&error))? {
            match entry.map_err(|error| unreadable(&error))? {
                DumpEntry::Record { segment, offset, index, kind, body, .. } => {
                    let place = || format!("record {index} (segment {segment}, offset {offset})");
                    let Some(kind) = kind else {
                        return Err(Broken::Unreadable(format!(
                            "{} is of a kind that is newer than this program",
                            place()
                        )));
                    };
                    meter.on_record(RECORD_HEADER_BYTES as u64 + body.len() as u64);
                    self.records += 1;
                    let mut effects = Vec::new();
                    if kind.has_effects()
                        && let Err(why) = parse(&body, |effect| effects.push(effect))
                    {
                        findings.add(Kind::Log, place(), why);
                    }
                    let is_behind = |start: &mut HistoryStart| index > start.after() && !effects.is_empty();
                    if let Some(start) = lacking.take_if(is_behind) {
                        let after = start.after();
                        let what =
                            format!("data were loaded into the base behind record {after}, and it does not have them");
                        findings.add(Kind::LogAndBase, place(), what);
                    }
                    if index > self.last && damages.is_empty() {
                        if index != self.last.next() {
                            let what = format!("it comes after record {}", self.last);
                            findings.add(Kind::LogAndBase, place(), what);
                        }
                        self.last = index;
                        for effect in &effects {
                            if let Err(why) = self.apply(effect, base).map_err(|error| note(error, findings))? {
                                findings.add(Kind::Log, place(), why);
                            }
                        }
                    }
                }
                DumpEntry::Damage(damage) => {
                    add(&damage, Kind::Log, findings);
                    damages.push(damage);
                }
                DumpEntry::Segment { .. } | DumpEntry::End { .. } => {}
            }
        }
        Ok(damages)
    }

    /// Returns whether the replay passes over an effect.
    fn is_dead(&mut self, effect: &Effect<'_>, base: &dyn Stored) -> Result<bool, BaseError> {
        let Some(space) = effect.key().and_then(space_of) else { return Ok(false) };
        if let Some(dead) = self.dead.get(&space) {
            return Ok(*dead);
        }
        let dead = base.row(&dead_row(space))?.is_some();
        self.dead.insert(space, dead);
        Ok(dead)
    }

    /// Applies an effect as the replay does; the inner error is the replay's reason to refuse it.
    fn apply(&mut self, effect: &Effect<'_>, base: &dyn Stored) -> Result<Result<(), String>, BaseError> {
        if self.is_dead(effect, base)? {
            return Ok(Ok(()));
        }
        let (row, value) = match *effect {
            Effect::Put { key, value } => (key, Some(value.to_vec())),
            Effect::Delete { key } => (key, None),
            Effect::Patch { .. } | Effect::Splice { .. } => {
                let (key, change) = Change::of(effect).expect("both are changes");
                let below = match self.rows.get_mut(key) {
                    Some(Some(before)) => {
                        let suits = change.suits(before.len());
                        if suits.is_ok() {
                            change.apply_to(before);
                        }
                        return Ok(suits);
                    }
                    Some(None) => None,
                    None => base.row(key)?,
                };
                let before = below.as_deref().unwrap_or_default();
                if let Err(why) = change.suits(before.len()) {
                    return Ok(Err(why));
                }
                (key, Some(change.apply(before)))
            }
            Effect::Touch { .. } | Effect::Statement { .. } => return Ok(Ok(())),
            Effect::Count { space, counter, delta } => {
                let counts = self.counts.entry(space).or_default();
                if let Some(count) = counts.get_mut(usize::from(counter)) {
                    *count += delta;
                }
                return Ok(Ok(()));
            }
        };
        self.rows.insert(RowKey::from_slice(row), value);
        Ok(Ok(()))
    }
}

fn add(damage: &Damage, kind: Kind, findings: &mut Findings<'_>) {
    let Damage { file, offset, index, reason } = damage;
    findings.add(kind, file.display(), format_args!("offset {offset}, record {index}: {reason}"));
}

fn unreadable(error: &OpenError) -> Broken {
    Broken::Unreadable(error.to_string())
}
