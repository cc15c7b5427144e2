//! DEBUG DIGEST beside a real redis-server: the same data has the same fingerprint.

use haypile_harness::client::{Client, Reply};
use haypile_harness::random::Random;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};

const STEPS: usize = 400;

#[test]
fn equal_data_has_an_equal_digest_and_other_data_another() {
    let ours = Template::haypile(&haypile_binary().expect("it is built"), "--enable-debug-command yes");
    let theirs = Template::redis("--enable-debug-command yes");
    let places = ["digest-ours", "digest-theirs"].map(|name| Workplace::new(name, None).expect("there is a disk"));
    let start = |template: anyhow::Result<Template>, place| {
        Server::start(&template.expect("a command line"), place).expect("the server starts").0
    };
    let servers = [start(ours, &places[0]), start(theirs, &places[1])];
    let mut clients = servers.each_ref().map(|server| server.client().expect("it accepts clients"));
    let mut random = Random::of_part(41, 0);
    let mut seen = std::collections::HashSet::new();
    for step in 0..STEPS {
        let key = format!("k{}", random.below(40)).into_bytes();
        let value = match random.below(6) {
            0 => Vec::new(),
            1 => random.below(1000).to_string().into_bytes(),
            2 => b"\x00\xff\r\n".repeat(random.below(10) as usize),
            // Beyond what one row takes, and beyond what is read in one piece.
            3 => vec![b'x'; 17_000 + step],
            4 if step % 40 == 0 => vec![b'y'; 2_500_000 + step],
            _ => format!("value {step}").into_bytes(),
        };
        let command: Vec<Vec<u8>> = match random.below(8) {
            0 => vec![b"DEL".into(), key],
            1 => vec![b"SELECT".into(), random.below(4).to_string().into_bytes()],
            2 => vec![b"SET".into(), key, value, b"EX".into(), b"10000".into()],
            3 => vec![b"APPEND".into(), key, value],
            4 => vec![b"PERSIST".into(), key],
            _ => vec![b"SET".into(), key, value],
        };
        let [ours, theirs] = ask(&mut clients, &command);
        assert_eq!(ours, theirs, "step {step}");
        if step % 10 == 0 {
            let [ours, theirs] = ask(&mut clients, &[b"DEBUG".into(), b"DIGEST".into()]);
            assert_eq!(ours, theirs, "step {step}");
            seen.insert(ours.to_string());
            let values = ["DEBUG", "DIGEST-VALUE", "k1", "k2", "none", "k3"].map(|word| word.as_bytes().to_vec());
            let [ours, theirs] = ask(&mut clients, &values);
            assert_eq!(ours, theirs, "step {step}");
        }
    }
    assert!(seen.len() > STEPS / 20, "the data changes, and so does its digest: {}", seen.len());
    let [ours, theirs] = ask(&mut clients, &[b"FLUSHALL".into()]);
    assert_eq!(ours, theirs);
    let [ours, theirs] = ask(&mut clients, &[b"DEBUG".into(), b"DIGEST".into()]);
    assert_eq!(ours, theirs);
    assert_eq!(ours.to_string(), format!("{theirs}"));
}

fn ask(clients: &mut [Client; 2], command: &[Vec<u8>]) -> [Reply; 2] {
    clients.each_mut().map(|client| client.call(command).expect("the server answers"))
}
