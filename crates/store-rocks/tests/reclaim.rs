//! The compaction filter can never take a live row: random orders of writing, freezing, flushing, compacting (by the
//! base itself, by hand, beside everything else), closing in the middle of it and opening again, against a plain map.

mod contract;

use contract::{Directory, Flush, all};
use haypile_store::base::{Base, Reclaim};
use haypile_store::row::{
    Family, Key, ObjectId, Slot, Space, SystemScope, data_row, home_slot, meta_row, object_of, owner_row, score_row,
    space_of, system_row,
};
use haypile_store_rocks::{Options, Rocks};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The events, in any order. Numbers choose among the objects and databases there are.
#[derive(Clone, Debug)]
enum Event {
    /// A new object with an owner and elements.
    Create {
        database: usize,
        slot: u16,
        elements: u8,
    },
    /// Elements of an object that nothing names yet: its owner comes later, or never.
    WriteAhead {
        database: usize,
        slot: u16,
        elements: u8,
    },
    /// The first object that was written ahead gets its owner.
    Own,
    /// One more element, or an old one again, for a living object.
    Write {
        object: usize,
        element: u8,
    },
    /// An element is deleted.
    Erase {
        object: usize,
        element: u8,
    },
    /// The owner row is written anew.
    Rename {
        object: usize,
    },
    /// The owner row goes, and with it the object.
    Remove {
        object: usize,
    },
    /// The database gets a fresh space, the old one is dead.
    FlushDatabase {
        database: usize,
    },
    /// The rows written so far wait for the flush; later ones are written above them.
    Freeze,
    Flush,
    Compact {
        from: u8,
        until: u8,
    },
    /// A compaction of everything on another thread, while the rest goes on.
    CompactBeside,
    Close {
        tell_again: bool,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..2usize, 0..3u16, 1..5u8).prop_map(|(database, slot, elements)| Event::Create { database, slot, elements }),
        2 => (0..2usize, 0..3u16, 1..5u8)
            .prop_map(|(database, slot, elements)| Event::WriteAhead { database, slot, elements }),
        2 => Just(Event::Own),
        3 => (any::<usize>(), 0..6u8).prop_map(|(object, element)| Event::Write { object, element }),
        1 => (any::<usize>(), 0..6u8).prop_map(|(object, element)| Event::Erase { object, element }),
        1 => any::<usize>().prop_map(|object| Event::Rename { object }),
        3 => any::<usize>().prop_map(|object| Event::Remove { object }),
        1 => (0..2usize).prop_map(|database| Event::FlushDatabase { database }),
        3 => Just(Event::Freeze),
        4 => Just(Event::Flush),
        2 => (0..7u8, 0..8u8).prop_map(|(from, until)| Event::Compact { from, until }),
        2 => Just(Event::CompactBeside),
        1 => any::<bool>().prop_map(|tell_again| Event::Close { tell_again }),
    ]
}

type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Rows on their way, with the state of the store at the moment at which they were cut off.
#[derive(Clone, Default)]
struct Generation {
    changes: Changes,
    /// Every object below is wholly in this generation or in those before it.
    next_object: u64,
    dead_spaces: Vec<Space>,
}

struct World {
    directory: Directory,
    base: Arc<Rocks>,
    beside: Vec<JoinHandle<()>>,
    active: Generation,
    frozen: Option<Generation>,
    /// Everything that was flushed, as if nothing were ever reclaimed.
    flushed: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The last `Reclaim` that the base was told.
    reclaim: Reclaim,
    objects: Vec<(Space, Slot, ObjectId)>,
    /// Objects without an owner so far, in the order of their ids: the store does not name ids from the first on.
    ahead: VecDeque<(Space, Slot, ObjectId)>,
    databases: [Space; 2],
    next_space: u32,
    writes: u32,
}

fn open(directory: &Directory) -> Arc<Rocks> {
    // Few files to a level and small levels, so that compactions of its own come often.
    let options = Options { cache_bytes: 4 << 20, level0_files: 2, ..Options::default() };
    Arc::new(Rocks::open(directory.path(), options).expect("the base opens"))
}

impl World {
    fn new() -> Self {
        let directory = Directory::new("reclaim");
        let base = open(&directory);
        World {
            directory,
            base,
            beside: Vec::new(),
            active: Generation { next_object: 1, ..Generation::default() },
            frozen: None,
            flushed: BTreeMap::new(),
            reclaim: Reclaim::default(),
            objects: Vec::new(),
            ahead: VecDeque::new(),
            databases: [Space(0), Space(1)],
            next_space: 2,
            writes: 0,
        }
    }

    fn put(&mut self, row: &[u8]) {
        self.writes += 1;
        self.active.changes.insert(row.to_vec(), Some(self.writes.to_be_bytes().to_vec()));
    }

    fn element(&mut self, (space, slot, id): (Space, Slot, ObjectId), element: u8) -> Vec<u8> {
        if element.is_multiple_of(2) {
            data_row(space, slot, id, &[element]).to_vec()
        } else {
            score_row(space, slot, id, &[element]).to_vec()
        }
    }

    fn new_object(&mut self, database: usize, slot: u16) -> (Space, Slot, ObjectId) {
        let object = (self.databases[database], Slot(slot), ObjectId(self.active.next_object));
        self.active.next_object += 1;
        object
    }

    /// Writes the first elements of an object.
    fn put_elements(&mut self, object: (Space, Slot, ObjectId), elements: u8) {
        for element in 0..elements {
            let row = self.element(object, element);
            self.put(&row);
        }
    }

    fn living(&self, object: usize) -> Option<usize> {
        (!self.objects.is_empty()).then(|| object % self.objects.len())
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Create { database, slot, elements } => {
                let object = self.new_object(database, slot);
                self.objects.push(object);
                self.put(&owner_row(object.0, object.1, object.2));
                self.put(&meta_row(&Key { space: object.0, slot: object.1, hash: object.2.0 as u32, name: b"k" }));
                self.put_elements(object, elements);
            }
            Event::WriteAhead { database, slot, elements } => {
                let object = self.new_object(database, slot);
                self.ahead.push_back(object);
                self.put_elements(object, elements);
            }
            Event::Own => {
                if let Some(object) = self.ahead.pop_front() {
                    self.put(&owner_row(object.0, object.1, object.2));
                    self.objects.push(object);
                }
            }
            Event::Write { object, element } => {
                if let Some(at) = self.living(object) {
                    let row = self.element(self.objects[at], element);
                    self.put(&row);
                }
            }
            Event::Erase { object, element } => {
                if let Some(at) = self.living(object) {
                    let row = self.element(self.objects[at], element);
                    self.active.changes.insert(row, None);
                }
            }
            Event::Rename { object } => {
                if let Some(at) = self.living(object) {
                    let (space, slot, id) = self.objects[at];
                    self.put(&owner_row(space, slot, id));
                }
            }
            Event::Remove { object } => {
                if let Some(at) = self.living(object) {
                    let (space, slot, id) = self.objects.swap_remove(at);
                    self.active.changes.insert(owner_row(space, slot, id).to_vec(), None);
                }
            }
            Event::FlushDatabase { database } => {
                let dead = std::mem::replace(&mut self.databases[database], Space(self.next_space));
                self.next_space += 1;
                self.objects.retain(|(space, ..)| *space != dead);
                self.ahead.retain(|(space, ..)| *space != dead);
                self.active.dead_spaces.push(dead);
                self.put(&system_row(SystemScope::Replicated, b"databases"));
            }
            Event::Freeze => {
                if self.frozen.is_none() {
                    let mut frozen = self.active.clone();
                    if let Some((.., id)) = self.ahead.front() {
                        frozen.next_object = id.0;
                    }
                    self.frozen = Some(frozen);
                    self.active.changes.clear();
                }
            }
            Event::Flush => self.flush(),
            Event::Compact { from, until } => self.base.reclaim_range(&[from], &[until]).expect("a compaction"),
            Event::CompactBeside => {
                let base = self.base.clone();
                // Closing may end the compaction before its time.
                self.beside.push(std::thread::spawn(move || drop(base.reclaim_range(b"", &[0xff]))));
            }
            Event::Close { tell_again } => self.reopen(tell_again),
        }
    }

    fn reopen(&mut self, tell_again: bool) {
        self.base.close();
        for thread in self.beside.drain(..) {
            thread.join().expect("the compaction ends");
        }
        self.base = open(&self.directory);
        if tell_again {
            self.base.set_reclaim(self.reclaim.clone());
        }
    }

    fn flush(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let mut flush = Flush::default();
        for (row, value) in &frozen.changes {
            flush.set(row, value.clone());
        }
        flush.into_base(&*self.base).expect("a flush");
        for (row, value) in frozen.changes {
            match value {
                Some(value) => self.flushed.insert(row, value),
                None => self.flushed.remove(&row),
            };
        }
        // Only after the flush: now everything below this id, and the death of these spaces, is in the base.
        self.reclaim = Reclaim { objects_below: frozen.next_object, dead_spaces: frozen.dead_spaces };
        self.base.set_reclaim(self.reclaim.clone());
    }

    /// Tells whether no compaction may take the row.
    fn must_stay(&self, row: &[u8]) -> bool {
        let Some(space) = space_of(row) else { return true };
        if self.reclaim.dead_spaces.contains(&space) {
            return false;
        }
        match (Family::of(row), home_slot(row), object_of(row)) {
            (Some(Family::Data | Family::Score), Some(slot), Some(id)) => {
                !self.reclaim.covers(id) || self.flushed.contains_key(&owner_row(space, slot, id)[..])
            }
            _ => true,
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let found: BTreeMap<_, _> = all(&*self.base).into_iter().collect();
        for (row, value) in &found {
            // A dead row may come back for a while, when the newer of its versions went first.
            if self.must_stay(row) {
                prop_assert_eq!(self.flushed.get(row), Some(value), "row {:?}", row);
            }
        }
        for row in self.flushed.keys().filter(|row| self.must_stay(row)) {
            prop_assert!(found.contains_key(row), "the live row {row:?} is gone");
        }
        Ok(())
    }

    /// Flushes all, compacts all: now exactly the live rows are there.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for event in [Event::Flush, Event::Freeze, Event::Flush, Event::Close { tell_again: true }] {
            self.apply(&event);
            self.check()?;
        }
        self.base.reclaim_range(b"", &[0xff]).expect("a compaction");
        let found: BTreeSet<_> = all(&*self.base).into_iter().map(|(row, _)| row).collect();
        let live: BTreeSet<_> = self.flushed.keys().filter(|row| self.must_stay(row)).cloned().collect();
        prop_assert_eq!(found, live, "what is dead must be gone after a compaction of everything");
        // Rows that live in the store live here.
        for &(space, slot, id) in &self.objects {
            prop_assert!(self.flushed.contains_key(&owner_row(space, slot, id)[..]));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_filter_never_takes_a_live_row(events in prop::collection::vec(event(), 10..70)) {
        let mut world = World::new();
        for event in &events {
            world.apply(event);
            world.check()?;
        }
        world.settle()?;
    }
}
