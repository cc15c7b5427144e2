//! Copies of members' data: for a member that needs one, and in an archive, from which a new member begins.

use super::{Group, Life, count};
use crate::machine::Data;
use haypile_log::{Index, Kind, Next, Through};
use haypile_raft::{Ballot, Compared, Fault, LastRecord, Machine, Member, Role, compare};
use haypile_store::testing::node::{Copy, End, MemoryBases, Node};
use std::path::Path as FilePath;

/// The most copies in the archive: each is restored once.
const ARCHIVED_MAX: usize = 4;

/// The archive of a group, and the members that began with what it had.
pub struct Restoring {
    /// Of a thousand steps, in so many a copy is archived or restored.
    pub rate: u64,
    archived: Vec<Copy>,
    /// The entry of each member behind which a record has to name it before it votes.
    unnamed: Vec<Option<u64>>,
}

impl Restoring {
    pub fn new(size: usize) -> Restoring {
        Restoring { rate: 0, archived: Vec::new(), unnamed: vec![None; size] }
    }

    /// Checks that a member which asks for a vote, or grants one, was named by a record behind those that the group had
    /// when it began, if it began with restored data.
    pub fn expect_named(&mut self, at: usize, member: &Member<Data>) {
        let (id, Some(behind)) = (at as u64 + 1, self.unnamed[at]) else { return };
        let is_there = member.standing().commit >= behind && member.configuration().get(id).is_some();
        let mut reader = member.machine().log().reader(Index(0)).through(Through::Written);
        let mut is_named = is_there;
        let name = format!("{id}@");
        loop {
            match reader.next().expect("the log can be read") {
                Next::Record(record) if record.kind == Kind::Members && record.entry > behind => {
                    is_named |= record.body.windows(name.len()).any(|part| part == name.as_bytes());
                }
                Next::Record(_) => {}
                Next::Gap(first) => {
                    reader = member.machine().log().reader(Index(first.0 - 1)).through(Through::Written)
                }
                Next::UpToDate => break,
            }
        }
        assert!(is_named, "member {id} takes part in an election, and no record behind entry {behind} names it");
        self.unnamed[at] = None;
    }
}

impl Group<'_> {
    /// Has a member fetch the copy that it needs.
    pub fn fetch(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &self.lives[at] else { return };
        let Some(wanted) = up.member.wanted_copy() else { return };
        let Life::Up(other) = &self.lives[wanted.from as usize - 1] else { return };
        let copy = other.member.machine().node().copy(&MemoryBases);
        self.tell(|| format!("{} fetches {:?} of {}", at + 1, copy.as_ref().map(|copy| copy.end), wanted.from));
        let Life::Up(up) = &mut self.lives[at] else { return };
        up.member.machine_mut().fetched = copy;
    }

    /// Has a member put the copy in place that it has fetched.
    pub fn install(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &mut self.lives[at] else { return };
        if self.clocks[at].is_stalled() {
            return;
        }
        let Some(end) = up.member.machine().fetched.as_ref().map(|copy| copy.end) else { return };
        match up.member.install(end.entry) {
            Ok(_) => self.after(at),
            Err(Fault::Refused(why)) => {
                assert!(why.contains("without this member"), "{why}");
                self.begin_again(at);
            }
            Err(Fault::Damaged(why)) => panic!("{why}"),
        }
    }

    /// Has the archive take a copy, or a server that is no member begin with something out of it.
    pub fn archive_or_restore(&mut self) {
        let at = self.draw();
        if self.restoring.archived.len() < ARCHIVED_MAX && self.random.chance(60) {
            let Life::Up(up) = &self.lives[at] else { return };
            self.restoring.archived.extend(up.member.machine().node().copy(&MemoryBases));
            return;
        }
        let Some(node) = self.draw_data() else { return };
        self.restore(at, node);
    }

    /// Draws what is restored: a copy of the group's past, one that was written apart from the group, or the disk of a
    /// member, which may have a tail that the group never agrees on.
    fn draw_data(&mut self) -> Option<Node> {
        let (options, from) = (self.options, self.draw());
        if self.random.chance(20) {
            let Life::Up(up) = &self.lives[from] else { return None };
            let node = up.member.machine().node().checkpoint(&MemoryBases, options);
            node.files().remove(FilePath::new("/ballot")).expect("a member has a ballot");
            return Some(node);
        }
        if self.restoring.archived.is_empty() {
            return None;
        }
        let drawn = self.random.below(self.restoring.archived.len() as u64) as usize;
        let copy = self.restoring.archived.swap_remove(drawn);
        let (term, entry) = copy.end.entry;
        let node = Node::new(&MemoryBases, options).install(copy);
        if self.random.chance(70) {
            return Some(node);
        }
        let mut data = Data::new(node);
        let own = data.keep_own((term + self.random.below(2), entry + 1), Kind::Term, b"apart");
        let last = own.expect("there is room");
        data.log().write();
        data.node().sync();
        data.log().confirm(last);
        data.apply(last).expect("nothing is broken");
        data.node().store.flush_now().expect("nothing is broken");
        Some(data.into_node().kill())
    }

    /// Has a server begin anew with these data, with a number that no member has, if the leader finds that they are of
    /// the group's past.
    fn restore(&mut self, at: usize, node: Node) {
        let id = at as u64 + 1;
        let leader = self.leaders().into_iter().find(|leader| {
            let Life::Up(up) = &self.lives[*leader] else { return false };
            self.truth.is_newest_leader(*leader as u64 + 1, up.member.standing().term)
        });
        let Some(Life::Up(up)) = leader.map(|leader| &self.lives[leader]) else { return };
        if up.member.role() != Role::Leader || up.member.configuration().get(id).is_some() {
            return;
        }
        let Ok(last) = LastRecord::of(node.store.log()) else { return };
        let (log, commit) = (up.member.machine().log(), up.member.standing().commit);
        if compare(log, log.confirmed(), &last) != Compared::Same {
            count(&self.seen.refused);
            return;
        }
        self.begin_restored(at, node, commit);
    }

    /// Has a server begin with data that the leader has found to be of the group's past, which was committed through
    /// entry `commit` then.
    pub fn begin_restored(&mut self, at: usize, node: Node, commit: u64) {
        let id = at as u64 + 1;
        let last = LastRecord::of(node.store.log()).expect("it was compared");
        self.truth.expect_committed((last.index.0, last.term), "restored data are of the group's past");
        if let Life::Up(up) = std::mem::replace(&mut self.lives[at], Life::Gone) {
            drop(up.member.into_machine().into_node().end(End::Kill));
        }
        // The connections of the server that had this number have ended.
        self.network.forget(id);
        for life in &mut self.lives {
            if let Life::Up(up) = life {
                up.unheard.retain(|(_, envelope)| envelope.from() != id);
            }
        }
        let history = node.store.history();
        let ballot = Ballot::begin_restored(&*node.files(), FilePath::new("/ballot"), (history, id), last.term, commit);
        drop(ballot.expect("there is none"));
        self.restoring.unnamed[at] = Some(commit);
        self.tell(|| format!("{id} begins with restored data through {}", last.index));
        count(&self.seen.restored);
        self.begin(at, node, false);
    }
}
