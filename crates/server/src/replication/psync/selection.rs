//! The keys of a Redis that are taken, where not all are: which ones a load has taken is a fact among its data, and
//! with other directives the data of the master come anew.

use haypile_config::Selection;
use haypile_store::{Mode, Store};
use std::io::{self, Error};

/// The name of the fact: the selection's text. There is none where all keys are taken.
const FACT: &[u8] = b"selection";

/// Returns whether the data have been taken by this selection.
pub fn has_taken(store: &Store, selection: &Selection) -> bool {
    match store.facts().get(FACT) {
        Some(text) => **text == *selection.to_string().as_bytes(),
        None => selection.is_all(),
    }
}

/// Notes the selection in a store that was just loaded.
pub fn note(store: &Store, selection: &Selection) -> io::Result<()> {
    if selection.is_all() {
        return Ok(());
    }
    let fact = (FACT.to_vec(), Some(selection.to_string().into_bytes()));
    store.put_facts(&[fact], Mode::Disk).map(drop).map_err(|stop| Error::other(format!("{stop:?}")))
}
