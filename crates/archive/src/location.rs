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
    check_location(location, options)?;
    match location.split_once("://") {
        None => Ok(Arc::new(Directory::new(location))),
        Some(("file", path)) => Ok(Arc::new(Directory::new(path))),
        #[cfg(not(feature = "object-stores"))]
        Some(_) => {
            let _ = goes_on;
            unreachable!("such a location was refused")
        }
        #[cfg(feature = "object-stores")]
        Some(_) => Ok(Arc::new(Objects::open(location, options, goes_on.clone())?)),
    }
}

/// Checks the form of a location and of the names of options, whether or not anything is there.
///
/// # Errors
/// A text for people: no archive can ever be there.
pub fn check_location(location: &str, options: &[(String, String)]) -> Result<(), String> {
    if location.contains(char::is_control) {
        return Err(format!("{location:?} is no place: it has control characters"));
    }
    match location.split_once("://") {
        None | Some(("file", _)) => Ok(()),
        #[cfg(not(feature = "object-stores"))]
        Some(_) => {
            let _ = options;
            Err(format!("this build reaches no object stores: {location}"))
        }
        #[cfg(feature = "object-stores")]
        Some(_) => Objects::check(location, options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_can_never_be_is_told_by_its_form() {
        for location in ["/a path/b", "relative", "file:///x"] {
            assert_eq!(check_location(location, &[]), Ok(()), "{location}");
        }
        let refused = |location: &str| check_location(location, &[]).expect_err(location);
        assert!(refused("/a\nb").contains("control characters"));
        for location in ["nfs://a/b", "s3://", "http://elsewhere/x"] {
            assert!(refused(location).contains(location), "{}", refused(location));
        }
    }

    #[cfg(feature = "object-stores")]
    #[test]
    fn options_are_those_of_the_store_that_the_address_names() {
        let options = |name: &str| [(name.to_owned(), "x".to_owned())];
        for (location, known) in [("s3://b/p", "region"), ("gs://b", "service_account"), ("az://c/p", "account_name")] {
            assert_eq!(check_location(location, &options(known)), Ok(()), "{location}");
            let why = check_location(location, &options("flavour")).expect_err(location);
            assert!(why.contains(location) && why.contains("flavour"), "{why}");
        }
    }
}
