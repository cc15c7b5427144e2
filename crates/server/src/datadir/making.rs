//! The making of directories whose names a power failure leaves: a data directory without its name is lost, whatever of
//! its content was synced.

use std::io::{ErrorKind, Result};
use std::path::Path;

/// Makes a directory, and those above it that are missing; each name is on the disk when this returns. `sync` makes the
/// names in a directory durable.
pub(super) fn make_dir(dir: &Path, sync: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = match dir.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return std::fs::create_dir(dir),
    };
    make_dir(above, sync)?;
    match std::fs::create_dir(dir) {
        // Another process has made it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    sync(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_in_which_one_is_made_is_synced() {
        let root = std::env::temp_dir().join(format!("haypile-making-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a temporary directory can be made");
        let dir = root.join("above/data");
        let mut synced = Vec::new();
        for _ in 0..2 {
            let mut sync = |dir: &Path| {
                assert!(std::fs::read_dir(dir).expect("a directory").next().is_some(), "the name is there already");
                synced.push(dir.to_owned());
                Ok(())
            };
            make_dir(&dir, &mut sync).expect("there is room");
        }
        assert_eq!(synced, [root.clone(), root.join("above")], "once each");
        let failed = make_dir(&root.join("other"), &mut |_| Err(ErrorKind::Other.into()));
        assert!(failed.is_err(), "its name may not outlive a power failure");
        std::fs::write(root.join("file"), "").expect("it is writable");
        assert!(make_dir(&root.join("file/data"), &mut |_| Ok(())).is_err(), "a file is in the way");
        std::fs::remove_dir_all(&root).expect("it is ours");
    }
}
