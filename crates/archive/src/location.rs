//! Locations of archives: paths, and addresses of object stores.

use crate::place::directory::Directory;
#[cfg(feature = "object-stores")]
use crate::place::objects::Objects;
use crate::place::{GoesOn, Place};
use std::sync::Arc;

/// Opens the place that `location` names: a path, or an address like `s3://bucket/path`, `gs://bucket/path` or
/// `az://container/path`. `options` are those of an object store, beside what the environment says.
///
/// # Errors
/// A text for people: the address or an option makes no sense.
pub fn place_of(location: &str, options: &[(String, String)], goes_on: &GoesOn) -> Result<Arc<dyn Place>, String> {
    match location.split_once("://") {
        None => Ok(Arc::new(Directory::new(location))),
        Some(("file", path)) => Ok(Arc::new(Directory::new(path))),
        #[cfg(not(feature = "object-stores"))]
        Some(_) => {
            let _ = (options, goes_on);
            Err(format!("this build reaches no object stores: {location}"))
        }
        #[cfg(feature = "object-stores")]
        Some(_) => Ok(Arc::new(Objects::open(location, options, goes_on.clone())?)),
    }
}
