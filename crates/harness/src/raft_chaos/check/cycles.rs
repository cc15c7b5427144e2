//! Cycles among transactions that append to lists and read them, after Elle (Kingsbury, Alvaro: "Elle: inferring
//! isolation anomalies from experimental observations", 2020). The lists that were read say in which order their values
//! were appended; so who wrote before whom, who read whose value and who did not yet see whose is known. With the order
//! in which transactions returned and were called, a cycle is a violation of strict serializability.

use std::collections::VecDeque;
use std::fmt::Write;

use super::lists::Lists;
use crate::raft_chaos::history::{End, Entry};

/// The reason why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Because {
    /// The two transactions appended to this list, one after the other.
    Wrote(usize),
    /// The second transaction has read what the first one appended to this list.
    Read(usize),
    /// The first transaction has read this list without what the second one appended.
    Missed(usize),
    /// The second transaction was called when the first one had returned.
    Time,
}

impl Because {
    fn text(self) -> String {
        match self {
            Because::Wrote(list) => format!("appended to list {list} before"),
            Because::Read(list) => format!("was read in list {list} by"),
            Because::Missed(list) => format!("did not see in list {list} what was appended by"),
            Because::Time => "had returned before the call of".into(),
        }
    }
}

/// Checks the operations on one list or one family; returns a text about what is wrong.
pub fn check(entries: &[&Entry]) -> Result<(), String> {
    let lists = Lists::of(entries)?;
    let graph = Graph::of(&lists);
    match graph.shortest_cycle(lists.transactions.len()) {
        Some(cycle) => Err(describe(&lists, &cycle)),
        None => Ok(()),
    }
}

/// Writes a cycle out: each transaction, and why it comes before the next one.
fn describe(lists: &Lists<'_>, cycle: &[(usize, Because)]) -> String {
    const WRITES: &str = "a text takes all";
    let mut text = String::from("a cycle: each of these comes before the next one, and the last one before the first");
    let mut time = false;
    for &(number, because) in cycle {
        match lists.transactions.get(number) {
            Some(transaction) => {
                time = because == Because::Time;
                write!(text, "\n{}", transaction.entry).expect(WRITES);
                write!(text, "\n    {}", because.text()).expect(WRITES);
            }
            // Moments in between say nothing more.
            None => debug_assert!(time, "only time leads to a moment"),
        }
    }
    text
}

/// The transactions, and behind them a moment for each return: transactions lead to the moment of their return, moments
/// to the next one, and the last moment before a call to the transaction that is called.
struct Graph {
    edges: Vec<Vec<(usize, Because)>>,
}

impl Graph {
    fn of(lists: &Lists<'_>) -> Graph {
        let mut graph = Graph { edges: vec![Vec::new(); lists.transactions.len()] };
        graph.add_writes(lists);
        graph.add_reads(lists);
        graph.add_times(lists);
        graph
    }

    fn add(&mut self, from: usize, to: usize, because: Because) {
        if from != to {
            self.edges[from].push((to, because));
        }
    }

    /// Returns the committed writers of a list's values that no read has seen: they come behind all that were.
    fn unseen<'l>(lists: &'l Lists<'_>, key: usize) -> impl Iterator<Item = usize> + 'l {
        let is_unseen = move |value: &i64| !lists.orders.get(&key).is_some_and(|order| order.contains(value));
        (0..lists.transactions.len()).filter(move |number| {
            let appends = lists.transactions[*number].appends.get(&key);
            lists.is_committed(*number) && appends.is_some_and(|values| values.iter().any(is_unseen))
        })
    }

    fn add_writes(&mut self, lists: &Lists<'_>) {
        for (&key, order) in &lists.orders {
            for pair in order.windows(2) {
                self.add(lists.writers[&pair[0]], lists.writers[&pair[1]], Because::Wrote(key));
            }
            if let Some(last) = order.last() {
                Graph::unseen(lists, key).for_each(|next| self.add(lists.writers[last], next, Because::Wrote(key)));
            }
        }
    }

    fn add_reads(&mut self, lists: &Lists<'_>) {
        for (&key, order) in &lists.orders {
            let unseen: Vec<usize> = Graph::unseen(lists, key).collect();
            for (number, reader) in lists.transactions.iter().enumerate() {
                let Some(read) = reader.reads.get(&key) else { continue };
                if let Some(last) = read.last() {
                    self.add(lists.writers[last], number, Because::Read(key));
                }
                match order.get(read.len()) {
                    Some(next) => self.add(number, lists.writers[next], Because::Missed(key)),
                    None => unseen.iter().for_each(|&next| self.add(number, next, Because::Missed(key))),
                }
            }
        }
    }

    fn add_times(&mut self, lists: &Lists<'_>) {
        let committed = (0..lists.transactions.len()).filter(|&number| lists.is_committed(number));
        // A call at the very moment of a return is not behind it.
        let mut events = Vec::new();
        for number in committed {
            let entry = lists.transactions[number].entry;
            events.push((entry.call_ns, false, number));
            if let End::Done { return_ns, .. } = entry.end {
                events.push((return_ns, true, number));
            }
        }
        events.sort_unstable();
        let mut moment = None;
        for (_, returns, number) in events {
            if returns {
                let next = self.edges.len();
                self.edges.push(Vec::new());
                self.add(number, next, Because::Time);
                if let Some(before) = moment.replace(next) {
                    self.add(before, next, Because::Time);
                }
            } else if let Some(moment) = moment {
                self.add(moment, number, Because::Time);
            }
        }
    }

    /// Returns a cycle with the fewest steps through the first transaction that lies on one, each with the reason for
    /// the step behind it.
    fn shortest_cycle(&self, transactions: usize) -> Option<Vec<(usize, Because)>> {
        if self.is_acyclic() {
            return None;
        }
        let cycles = (0..transactions).filter_map(|start| self.cycle_through(start, transactions));
        cycles.min_by_key(|cycle| cycle.iter().filter(|(number, _)| *number < transactions).count())
    }

    /// Returns whether all transactions can be put in an order: takes away what nothing comes before, until nothing is
    /// left.
    fn is_acyclic(&self) -> bool {
        let mut before = vec![0_usize; self.edges.len()];
        self.edges.iter().flatten().for_each(|(to, _)| before[*to] += 1);
        let mut free: Vec<usize> = (0..before.len()).filter(|&number| before[number] == 0).collect();
        let mut taken = 0;
        while let Some(number) = free.pop() {
            taken += 1;
            for &(to, _) in &self.edges[number] {
                before[to] -= 1;
                if before[to] == 0 {
                    free.push(to);
                }
            }
        }
        taken == self.edges.len()
    }

    /// Returns a cycle through a transaction with the fewest transactions: steps from moment to moment cost nothing.
    fn cycle_through(&self, start: usize, transactions: usize) -> Option<Vec<(usize, Because)>> {
        let mut from: Vec<Option<(usize, Because)>> = vec![None; self.edges.len()];
        let mut costs = vec![usize::MAX; self.edges.len()];
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((number, cost)) = queue.pop_front() {
            if cost > costs[number] {
                continue;
            }
            for &(to, because) in &self.edges[number] {
                let next = cost + usize::from(to < transactions);
                if next < costs[to] {
                    (costs[to], from[to]) = (next, Some((number, because)));
                    if next == cost { queue.push_front((to, next)) } else { queue.push_back((to, next)) }
                }
            }
        }
        let mut cycle = Vec::new();
        let mut at = start;
        loop {
            let (before, because) = from[at]?;
            cycle.push((before, because));
            at = before;
            if at == start {
                cycle.reverse();
                return Some(cycle);
            }
        }
    }
}
