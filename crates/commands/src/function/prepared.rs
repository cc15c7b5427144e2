//! Libraries that were loaded and are not in the data yet: a dry run loads them, and the run under the exclusive lock
//! finds them here.

use crate::function::Library;
use sha1::{Digest, Sha1};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Libraries that are kept: those of a payload, and of some clients that load at the same time.
const KEPT: usize = 64;

/// Bytes of code beyond which a library takes the place of all others.
const BYTES_KEPT: usize = 8 << 20;

type Loaded = Result<Library, Vec<u8>>;

/// The libraries that were prepared, the newest last, each with the SHA-1 of its code.
static PREPARED: Mutex<VecDeque<([u8; 20], Loaded)>> = Mutex::new(VecDeque::new());

/// Returns a library that was loaded from this code, or why it cannot be. That is said once: a machine that was too
/// busy may load it the next time.
pub fn find(code: &[u8]) -> Option<Loaded> {
    let print: [u8; 20] = Sha1::digest(code).into();
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = prepared.iter().position(|(of, _)| *of == print)?;
    match &prepared[at].1 {
        Ok(library) => Some(Ok(library.clone())),
        Err(_) => prepared.remove(at).map(|(_, loaded)| loaded),
    }
}

/// Keeps what has come of a code.
pub fn keep(code: &[u8], loaded: Loaded) {
    let bytes = |loaded: &Loaded| loaded.as_ref().map_or(0, |library| library.fact.len());
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let print = Sha1::digest(code).into();
    prepared.retain(|(of, _)| *of != print);
    while prepared.len() >= KEPT || prepared.iter().map(|(_, other)| bytes(other)).sum::<usize>() > BYTES_KEPT {
        prepared.pop_front();
    }
    prepared.push_back((print, loaded));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let code = |number: usize| format!("the newest are kept {number}").into_bytes();
        let error = |number: usize| Err(vec![number as u8]);
        (0..KEPT + 2).for_each(|number| keep(&code(number), error(number)));
        assert!(find(&code(1)).is_none());
        assert_eq!(find(&code(2)).and_then(Result::err), Some(vec![2]));
        assert!(find(&code(2)).is_none(), "an error is said once");
    }
}
