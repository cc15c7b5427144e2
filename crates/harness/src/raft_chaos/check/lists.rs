//! Lists of transactions that append: the order of writes, as reads have seen it, and what contradicts itself without
//! any order.

use std::collections::{BTreeMap, BTreeSet};

use crate::raft_chaos::history::{End, Entry};
use crate::raft_chaos::operation::{Operation, Step};

/// A transaction: an entry of a history, with its appends and what it read, both by list.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub entry: &'a Entry,
    pub appends: BTreeMap<usize, Vec<i64>>,
    /// The lists as they were before the transaction, as far as it has read them.
    pub reads: BTreeMap<usize, Vec<i64>>,
}

/// All transactions on one object.
#[derive(Debug)]
pub struct Lists<'a> {
    pub transactions: Vec<Transaction<'a>>,
    /// The longest list that was read, by its number: every other read is its beginning.
    pub orders: BTreeMap<usize, Vec<i64>>,
    /// The transaction that appended a value.
    pub writers: BTreeMap<i64, usize>,
    /// Transactions of unknown outcome that have taken effect: somebody has read a value of theirs.
    pub observed: BTreeSet<usize>,
}

impl<'a> Lists<'a> {
    /// Reads the entries of an object; returns a text about what no order of transactions explains.
    pub fn of(entries: &[&'a Entry]) -> Result<Lists<'a>, String> {
        let transactions = entries.iter().map(|entry| transaction(entry)).collect::<Result<Vec<_>, _>>()?;
        let mut lists =
            Lists { transactions, orders: BTreeMap::new(), writers: BTreeMap::new(), observed: BTreeSet::new() };
        for (number, transaction) in lists.transactions.iter().enumerate() {
            for &value in transaction.appends.values().flatten() {
                lists.writers.insert(value, number);
            }
        }
        for transaction in &lists.transactions {
            for (key, read) in &transaction.reads {
                let order = lists.orders.entry(*key).or_default();
                if read.len() > order.len() {
                    order.clone_from(read);
                }
            }
        }
        lists.check_reads()?;
        Ok(lists)
    }

    /// Whether a transaction has taken effect.
    pub fn is_committed(&self, number: usize) -> bool {
        match self.transactions[number].entry.end {
            End::Done { .. } => true,
            End::Unknown => self.observed.contains(&number),
            End::Failed => false,
        }
    }

    /// Checks each read by itself and against the longest one, and notes who was observed.
    fn check_reads(&mut self) -> Result<(), String> {
        for reader in &self.transactions {
            for (key, read) in &reader.reads {
                let order = &self.orders[key];
                if !order.starts_with(read) {
                    return Err(format!("two reads of list {key} have different orders: {order:?}\n{}", reader.entry));
                }
            }
        }
        for (key, order) in &self.orders {
            let mut seen = BTreeSet::new();
            for &value in order {
                let said = |what: &str| format!("{what}: {value}, in list {key}: {order:?}");
                let Some(&writer) = self.writers.get(&value) else {
                    return Err(said("a value that nobody has written"));
                };
                let entry = self.transactions[writer].entry;
                if entry.end == End::Failed {
                    return Err(format!("{}\n{entry}", said("a value whose append has failed")));
                }
                if !self.transactions[writer].appends.get(key).is_some_and(|all| all.contains(&value)) {
                    return Err(format!("{}\n{entry}", said("a value of another list")));
                }
                if !seen.insert(value) {
                    return Err(format!("{}\n{entry}", said("a value that was appended once is there twice")));
                }
                self.observed.insert(writer);
            }
        }
        Ok(())
    }
}

/// Takes an entry apart. A transaction that has not returned has no reads.
fn transaction(entry: &Entry) -> Result<Transaction<'_>, String> {
    let mut transaction = Transaction { entry, appends: BTreeMap::new(), reads: BTreeMap::new() };
    let (steps, answer) = match (&entry.operation, &entry.end) {
        (Operation::Append(value), _) => (vec![Step::Append { key: 0, value: *value }], [].as_slice()),
        (Operation::Read, End::Done { answer, .. }) => (vec![Step::Read { key: 0 }], answer.as_slice()),
        (Operation::Transact(steps), End::Done { answer, .. }) => (steps.clone(), answer.as_slice()),
        (Operation::Transact(steps), _) => (steps.clone(), [].as_slice()),
        _ => return Err(format!("no operation of lists: {entry}")),
    };
    let mut answer = answer.iter();
    for step in steps {
        match step {
            Step::Append { key, value } => transaction.appends.entry(key).or_default().push(value),
            Step::Read { key } => {
                let Some(list) = answer.next() else { continue };
                let own = transaction.appends.get(&key).map_or(&[][..], Vec::as_slice);
                let Some(before) = list.strip_suffix(own) else {
                    return Err(format!("a transaction does not see its own appends to list {key}\n{entry}"));
                };
                let first = transaction.reads.entry(key).or_insert_with(|| before.to_vec());
                if first != before {
                    return Err(format!("a transaction has read list {key} twice, and differently\n{entry}"));
                }
            }
        }
    }
    Ok(transaction)
}
