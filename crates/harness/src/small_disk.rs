//! A small disk: a tmpfs of its own, where this process may mount one, that can be filled to the last byte.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes that are written at once while the disk is filled.
const STEP_BYTES: u64 = 1 << 20;

/// A mounted tmpfs; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// Changes options of the mount, as its size.
    pub fn resize(&self, options: &str) {
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "who has mounted it may change it");
    }

    /// Mounts a tmpfs on `path`, which is made, with these options of `mount`. Returns `None`, and says so, where this
    /// process may not mount: the caller has nothing to test.
    pub fn mount(path: &Path, options: &str) -> Option<SmallDisk> {
        fs::create_dir_all(path).expect("a directory can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(SmallDisk(path.to_owned()));
        }
        eprintln!("no tmpfs can be mounted here: nothing was tested");
        None
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
