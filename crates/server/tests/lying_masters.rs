//! Masters that say what is not so, in frames with the right checksums: the replica loses nothing by it, and says what
//! it has found.

mod process;

use haypile_replication::Manifest;
use haypile_replication::frame::{Decoded, Frame, decode};
use process::following::{DEBUG, field, is_equal, wait_for_link};
use process::{Server, TempDir, wait_until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

/// The way in which a relay passes a master's frame on.
type Lie = fn(&Frame<'_>, &mut Vec<u8>);

/// A relay before a master, which has it lie.
struct Relay {
    port: u16,
    lie: Arc<Mutex<Lie>>,
    /// When replicas have connected.
    connected: Arc<Mutex<Vec<Instant>>>,
}

impl Relay {
    fn before(master: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let honest: Lie = |frame, out| frame.encode(out);
        let lie = Arc::new(Mutex::new(honest));
        let connected = Arc::new(Mutex::new(Vec::new()));
        let (of_relay, noted) = (lie.clone(), connected.clone());
        // The thread ends with the process.
        thread::spawn(move || {
            for replica in listener.incoming().flatten() {
                let Ok(master) = TcpStream::connect(("127.0.0.1", master)) else { return };
                noted.lock().expect("no panic").push(Instant::now());
                relay(replica, master, of_relay.clone());
            }
        });
        Relay { port, lie, connected }
    }

    /// Returns when replicas have connected since the last call.
    fn take_connected(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.connected.lock().expect("no panic"))
    }

    fn lies(&self, lie: Lie) {
        *self.lie.lock().expect("no panic") = lie;
    }
}

/// Passes on what either side says; but for the lie.
fn relay(replica: TcpStream, master: TcpStream, lie: Arc<Mutex<Lie>>) {
    let follows = Arc::new(AtomicBool::new(false));
    let clone = |stream: &TcpStream| stream.try_clone().expect("a handle of a socket");
    let (mut from_replica, mut to_master, asked) = (clone(&replica), clone(&master), follows.clone());
    thread::spawn(move || {
        let (mut bytes, mut requests) = (vec![0; 1 << 16], 0);
        while let Ok(count @ 1..) = from_replica.read(&mut bytes) {
            requests += 1;
            // The second request is answered by frames.
            asked.store(requests > 1, Ordering::SeqCst);
            if to_master.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to_master.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let (mut from_master, mut to_replica) = (master, replica);
        let (mut piece, mut come, mut out) = (vec![0; 1 << 16], Vec::new(), Vec::new());
        while let Ok(count @ 1..) = from_master.read(&mut piece) {
            if !follows.load(Ordering::SeqCst) {
                if to_replica.write_all(&piece[..count]).is_err() {
                    break;
                }
                continue;
            }
            come.extend_from_slice(&piece[..count]);
            let mut taken = 0;
            while let Decoded::Frame(frame, bytes) = decode(&come[taken..]).expect("the master is honest") {
                taken += bytes;
                let lie = *lie.lock().expect("no panic");
                lie(&frame, &mut out);
            }
            come.drain(..taken);
            if to_replica.write_all(&out).is_err() {
                break;
            }
            out.clear();
        }
        let _ = to_replica.shutdown(Shutdown::Both);
    });
}

/// Passes on a frame, and of a copy's list a changed one.
fn of_copy(frame: &Frame<'_>, out: &mut Vec<u8>, change: fn(&mut Manifest)) {
    let Frame::Copy { shared, manifest } = frame else { return frame.encode(out) };
    let mut manifest = Manifest::decode(manifest).expect("the master is honest");
    change(&mut manifest);
    Frame::Copy { shared: *shared, manifest: manifest.encode().as_bytes() }.encode(out);
}

/// Returns the place of the first table among the files.
fn first_table(manifest: &Manifest) -> usize {
    manifest.files.iter().position(|file| file.is_table()).expect("the master has tables")
}

fn resize_table(manifest: &mut Manifest, by: i64) {
    let table = first_table(manifest);
    manifest.files[table].bytes = manifest.files[table].bytes.strict_add_signed(by);
}

#[test]
fn half_a_copy_does_not_take_the_place_of_the_replicas_own_data() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[&DEBUG[..], &["--memtable-size", "1mb"]].concat());
    let mut client = master.client();
    for number in 0..500 {
        let value = "v".repeat(5000);
        assert_eq!(client.ask(&format!("SET big:{number} {value}")), "+OK\r\n");
    }
    let relay = Relay::before(master.port);
    let mut replica = Server::start(other.path(), &DEBUG);
    assert_eq!(replica.client().ask("SET kept 1"), "+OK\r\n");
    let unusable = "its copy cannot be used";
    let lies: [(Lie, &str); 7] = [
        (|frame, out| of_copy(frame, out, |copy| copy.files.truncate(1)), unusable),
        (|frame, out| of_copy(frame, out, |copy| copy.files.truncate(copy.files.len() / 2)), unusable),
        (|frame, out| of_copy(frame, out, |copy| drop(copy.files.pop())), unusable),
        (|frame, out| of_copy(frame, out, |copy| copy.files.truncate(first_table(copy))), unusable),
        (|frame, out| of_copy(frame, out, |copy| copy.index.0 += 1), unusable),
        (|frame, out| of_copy(frame, out, |copy| resize_table(copy, -1)), "longer than the list says"),
        (|frame, out| of_copy(frame, out, |copy| resize_table(copy, 1)), "shorter than the list says"),
    ];
    for (lie, why) in lies {
        relay.lies(lie);
        let mut client = replica.client();
        assert_eq!(client.ask(&format!("REPLICAOF 127.0.0.1 {}", relay.port)), "+OK\r\n");
        wait_until(why, || field(&mut client, "master_link_error").contains(why));
        assert_eq!((&*field(&mut client, "master_link_status"), &*client.ask("GET kept")), ("down", "$1\r\n1\r\n"));
        // A start does not take the copy either.
        drop(client);
        replica.kill();
        replica = Server::start(other.path(), &DEBUG);
        assert_eq!(replica.client().ask("GET kept"), "$1\r\n1\r\n");
    }
    relay.lies(|frame, out| frame.encode(out));
    replica.client().ask(&format!("REPLICAOF 127.0.0.1 {}", relay.port));
    wait_for_link(&replica);
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}

#[test]
fn a_master_whose_clock_is_hours_ahead_is_followed_and_the_difference_told() {
    const HOURS_MS: u64 = 5 * 3_600_000;
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    assert_eq!(client.ask("SET lives v EX 36000"), "+OK\r\n");
    let relay = Relay::before(master.port);
    relay.lies(|frame, out| match *frame {
        Frame::Heartbeat { written, synced, confirmed, time_ms } => {
            Frame::Heartbeat { written, synced, confirmed, time_ms: time_ms + HOURS_MS }.encode(out);
        }
        _ => frame.encode(out),
    });
    let replica = Server::start(other.path(), &DEBUG);
    let mut of_replica = replica.client();
    assert_eq!(of_replica.ask(&format!("REPLICAOF 127.0.0.1 {}", relay.port)), "+OK\r\n");
    wait_for_link(&replica);
    assert_eq!(client.ask("SET more v PX 36000000"), "+OK\r\n");
    is_equal(&master, &replica);
    let skew = |client: &mut _| field(client, "master_clock_skew_seconds").parse::<f64>().expect("a number");
    wait_until("the difference is told", || (-18_002.0..-17_998.0).contains(&skew(&mut of_replica)));
    assert_eq!(of_replica.ask("EXISTS lives more"), ":2\r\n");
    replica.stop();
    master.stop();
}

#[test]
fn a_master_whose_records_are_always_damaged_is_asked_less_and_less_often() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut client = master.client();
    let relay = Relay::before(master.port);
    let replica = Server::start(other.path(), &DEBUG);
    let mut of_replica = replica.client();
    assert_eq!(of_replica.ask(&format!("REPLICAOF 127.0.0.1 {}", relay.port)), "+OK\r\n");
    wait_for_link(&replica);
    assert_eq!(client.ask("SET sound v"), "+OK\r\n");
    is_equal(&master, &replica);
    relay.lies(|frame, out| {
        frame.encode(out);
        if matches!(frame, Frame::Record(_)) {
            *out.last_mut().expect("a frame has bytes") ^= 1;
        }
    });
    relay.take_connected();
    // The master says that it goes on, each time.
    assert_eq!(client.ask("SET damaged v"), "+OK\r\n");
    let mut times = Vec::new();
    wait_until("the replica has come back six times", || {
        times.extend(relay.take_connected());
        times.len() >= 6
    });
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[4] >= 3 * gaps[0], "the pauses grow: {gaps:?}");
    wait_until("why is told", || field(&mut of_replica, "master_link_error").contains("checksum"));
    assert_eq!(of_replica.ask("EXISTS sound damaged"), ":1\r\n");
    relay.lies(|frame, out| frame.encode(out));
    wait_for_link(&replica);
    is_equal(&master, &replica);
    replica.stop();
    master.stop();
}
