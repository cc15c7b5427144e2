//! A redis-server to compare with: started on a unix socket in a directory of its own, stopped when dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes away with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("haypile-config-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().canonicalize().expect("there is a directory for temporary files").join(name);
        std::fs::create_dir(&path).expect("the directory is new");
        Scratch(path)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("it is below the directory"))
            .expect("directories can be made here");
        std::fs::write(&path, text).expect("files can be written here");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Redis {
    child: Child,
    socket: UnixStream,
}

impl Redis {
    /// Starts redis-server with a file and more arguments, in `directory`, with `redis.sock` there as its socket. None
    /// if it refuses its configuration.
    pub fn start(directory: &Path, arguments: &[&str], stdin: &[u8]) -> Option<Redis> {
        let mut command = Command::new("redis-server");
        command
            .current_dir(directory)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child =
            command.spawn().expect("these tests compare with redis-server: install it (apt-get install redis-server)");
        // A server that refuses its command line ends without looking at its input.
        let _ = child.stdin.take().expect("it is a pipe").write_all(stdin);
        let mut log = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut line = String::new();
        while log.read_line(&mut line).expect("the log is text") > 0 {
            if line.contains("Ready to accept connections") || line.contains("now ready to accept connections at") {
                let socket = UnixStream::connect(directory.join("redis.sock")).expect("redis-server listens");
                return Some(Redis { child, socket });
            }
            line.clear();
        }
        child.wait().expect("redis-server ended");
        None
    }

    /// Starts one without any configuration but where it listens.
    pub fn plain(directory: &Path) -> Redis {
        Redis::start(directory, &["--port", "0", "--unixsocket", "redis.sock", "--save", ""], b"")
            .expect("this is a good configuration")
    }

    /// A command's reply, flattened: an error or status as one text, an array as its items, which are not arrays.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        self.socket.write_all(&request).expect("redis-server reads");
        match self.line().split_at(1) {
            ("-", error) => Err(error.into()),
            ("+" | ":", text) => Ok(vec![text.into()]),
            ("*", count) => {
                let count: usize = count.parse().expect("a count");
                Ok((0..count).map(|_| self.bulk()).collect())
            }
            other => panic!("an unexpected reply: {other:?}"),
        }
    }

    fn bulk(&mut self) -> Vec<u8> {
        let length: usize = self.line()[1..].parse().expect("a length");
        let mut text = vec![0; length + 2];
        self.socket.read_exact(&mut text).expect("redis-server answers");
        text.truncate(length);
        text
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.socket.read_exact(&mut byte).expect("redis-server answers");
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("a line of the protocol is text")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
