//! How an archive is opened, as a configuration or a command line names it.

use haypile_archive::{Archive, Error, Key, Place, place_of};
use haypile_config::cli::ArchivePlace;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Reads a key file.
///
/// # Errors
/// A text for people.
pub fn key_of(file: Option<&Path>) -> Result<Option<Key>, String> {
    let Some(file) = file else { return Ok(None) };
    let failed = |why: String| format!("the key file {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    Key::parse(&text).map(Some).map_err(failed)
}

/// Opens the archive of a command line, to read it.
///
/// # Errors
/// A text for people.
pub fn open(place: &ArchivePlace) -> Result<Archive, String> {
    let goes_on = Arc::new(AtomicBool::new(true));
    let opened: Arc<dyn Place> = place_of(&place.location, &place.options, &goes_on)?;
    let key = key_of(place.key_file.as_deref())?;
    Archive::open(opened, key).map_err(|error| match error {
        Error::Failed(why) => why,
        error => error.to_string(),
    })
}
