//! A small disk: a tmpfs of its own that can be filled to the last byte. Where none can be mounted, tests panic and
//! programs end with an error, unless `WITHOUT_MOUNT` allows to skip what needs one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The environment variable that is 1 where tests and programs may skip what needs a mount.
const WITHOUT_MOUNT: &str = "HAYPILE_WITHOUT_MOUNT";

/// Bytes that are written at once while the disk is filled.
const STEP_BYTES: u64 = 1 << 20;

/// A mounted tmpfs; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(pub PathBuf);

/// Whether tests and programs may skip what needs a small disk.
pub fn may_be_missing() -> bool {
    std::env::var_os(WITHOUT_MOUNT).is_some_and(|value| value == "1")
}

impl SmallDisk {
    /// Changes options of the mount, as its size.
    pub fn resize(&self, options: &str) {
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "who has mounted it may change it");
    }

    /// Mounts a tmpfs on `path`, which is made, with these options of `mount`. Returns `None` where this process may
    /// not mount, and may skip what needs it: the caller has nothing to test.
    ///
    /// # Panics
    /// If this process may not mount, and may not skip it.
    #[track_caller]
    pub fn mount(path: &Path, options: &str) -> Option<SmallDisk> {
        SmallDisk::try_mount(path, options).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Mounts a tmpfs as `mount` does, for programs: an error takes the place of the panic.
    pub fn try_mount(path: &Path, options: &str) -> Result<Option<SmallDisk>> {
        fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).stdin(Stdio::null());
        let refusal = match mount.output() {
            Ok(output) if output.status.success() => return Ok(Some(SmallDisk(path.to_owned()))),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
            Err(error) => format!("starting mount: {error}"),
        };
        if may_be_missing() {
            eprintln!("no tmpfs can be mounted here, and {WITHOUT_MOUNT} is 1: nothing was tested");
            return Ok(None);
        }
        bail!(
            "a small disk is needed, and no tmpfs can be mounted: {refusal}. Run this as root, or by 'unshare --user \
             --map-root-user --mount COMMAND'; {WITHOUT_MOUNT}=1 skips what needs a small disk"
        )
    }

    pub fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(&self.0).map_or(0, |disk| disk.f_bavail * disk.f_frsize)
    }

    /// Fills all room but so many bytes with a file that is not the server's.
    pub fn leave(&self, bytes: u64) -> io::Result<()> {
        let mut file = File::options().append(true).create(true).open(self.filler())?;
        loop {
            let step = self.free_bytes().saturating_sub(bytes).min(STEP_BYTES);
            match file.write(&vec![0; step as usize]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives back the room that `leave` has taken.
    pub fn clear(&self) {
        // The file may be missing.
        let _ = fs::remove_file(self.filler());
    }

    /// Returns the name of a file that a data directory may hold.
    fn filler(&self) -> PathBuf {
        self.0.join("filler.conf")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
    }
}
