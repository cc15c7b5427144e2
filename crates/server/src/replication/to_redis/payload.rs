//! The data on their way to a Redis: at once, with a mark at the end, or with their length before them, for which they
//! are written to a file first.

use crate::export::Payload;
use crate::process::give_way;
use crate::replication::copies::Copy;
use crate::replication::state::Replication;
use crate::socket::Socket;
use haypile_log::DirectoryId;
use haypile_replication::asked::Asked;
use std::fs::File;
use std::io::{self, BufWriter, Error, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

/// Bytes that are sent, or read from a file, at once.
const PIECE_BYTES: usize = 64 << 10;

/// The time between two signs of life while nothing is sent.
pub const SIGN_INTERVAL: Duration = Duration::from_secs(1);

/// The byte that a Redis which waits takes for a sign of life.
pub const SIGN: &[u8] = b"\n";

/// The parts of a payload's way.
pub struct Sending<'a> {
    pub replication: &'a Replication,
    pub version: u64,
    pub socket: &'a Socket,
    pub asked: &'a Asked,
    pub copy: &'a Copy,
    /// The database that the commands behind the data are about.
    pub database: Option<u32>,
}

impl Sending<'_> {
    /// Sends the data as a file of Redis's format.
    ///
    /// # Errors
    /// The connection broke, the copy cannot be read, or the data are others by now.
    pub fn run(&self) -> io::Result<()> {
        give_way();
        let source = Payload::open(self.copy.dir()).map_err(Error::other)?;
        let only_functions = self.asked.only_functions;
        let write = |out| source.write(out, self.database, only_functions).map_err(Error::other);
        if self.asked.knows_end {
            let mark = mark();
            self.socket.write_all(format!("$EOF:{mark}\r\n").as_bytes())?;
            let out = Out { sending: self, to: To::Socket };
            write(BufWriter::with_capacity(PIECE_BYTES, Box::new(out) as Box<dyn Write>))?.flush()?;
            return self.socket.write_all(mark.as_bytes());
        }
        let path = self.copy.dir().join("payload.rdb");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        // The file has no name from here on: nothing is left of it, whatever happens.
        std::fs::remove_file(&path)?;
        let out = Out { sending: self, to: To::File(file.try_clone()?, Instant::now()) };
        write(BufWriter::with_capacity(PIECE_BYTES, Box::new(out) as Box<dyn Write>))?.flush()?;
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        self.socket.write_all(format!("${bytes}\r\n").as_bytes())?;
        let (mut piece, mut out) = (vec![0; PIECE_BYTES], Out { sending: self, to: To::Socket });
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                read => out.write_all(&piece[..read])?,
            }
        }
    }
}

/// The destination of the bytes of a payload.
enum To {
    Socket,
    /// A file, and when the last sign of life was sent.
    File(File, Instant),
}

struct Out<'a> {
    sending: &'a Sending<'a>,
    to: To,
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Sending { replication, version, socket, copy, .. } = self.sending;
        if !replication.goes_on(*version) {
            return Err(Error::other("the data are others by now, or the server stops"));
        }
        copy.use_now();
        match &mut self.to {
            To::Socket => socket.write_all(bytes).map(|()| bytes.len()),
            To::File(file, signed) => {
                if signed.elapsed() >= SIGN_INTERVAL {
                    *signed = Instant::now();
                    socket.write_all(SIGN)?;
                }
                file.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns 40 bytes that the data do not end with by chance.
fn mark() -> String {
    let hex = |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut mark = hex(DirectoryId::random().0) + &hex(DirectoryId::random().0);
    mark.truncate(40);
    mark
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_mark_has_forty_bytes_and_is_another_one_each_time() {
        let marks = [super::mark(), super::mark()];
        assert!(marks.iter().all(|mark| mark.len() == 40) && marks[0] != marks[1], "{marks:?}");
    }
}
