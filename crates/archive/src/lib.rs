//! Archives: backups and the log, in a directory or an object store, from which the data of any moment are restored.
//!
//! An archive is a set of objects that are written once: chunks of the log, files of backups under the checksum of
//! their content, and a manifest for each backup, which comes last (docs/format/archive.md). This crate knows what is
//! there ([`Catalog`]), what a restore needs of it ([`plan`]) and what may go ([`surplus`]); it reads and writes no
//! data directory.

mod archive;
mod catalog;
mod chain;
mod key;
mod location;
mod manifest;
mod marks;
mod names;
mod place;
mod plan;
mod sealed;
mod surplus;
pub mod testing;

pub use archive::{Archive, Error, digest_file};
pub use catalog::{Catalog, Lane};
pub use chain::Chain;
pub use key::Key;
pub use location::{check_location, place_of};
pub use manifest::{BackupFile, Manifest, ManifestError};
pub use marks::{Mark, Work};
pub use names::{ChunkName, Digest, backup_time, exact_time};
pub use place::directory::Directory;
#[cfg(feature = "object-stores")]
pub use place::objects::Objects;
pub use place::{GoesOn, Listed, Place, PlaceError};
pub use plan::{Hole, Plan, PlanError, Target, holes, plan, restorable, through_damage};
pub use surplus::{Surplus, surplus};
