//! Values of all types, made of seeded random numbers, for tests that compare a server with another one. Sizes lie on
//! both sides of the bounds between encodings.

use crate::random::Random;

/// Returns a string: empty, a number, repetitive, binary, or short.
pub fn text(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => (random.next() as i64 >> random.below(64)).to_string().into_bytes(),
        2 => random.below(100).to_string().into_bytes(),
        3 => b"pile of hay ".repeat(random.below(30) as usize),
        4 => (0..random.below(100)).map(|_| random.below(256) as u8).collect(),
        5 if random.percent(5) => vec![b'x'; random.below(70_000) as usize],
        _ => format!("text {}", random.below(1000)).into_bytes(),
    }
}

fn score(random: &mut Random) -> Vec<u8> {
    let score = match random.below(5) {
        0 => ["inf", "-inf", "0", "1e300", "5e-324", "-0"][random.below(6) as usize].to_string(),
        1 => random.fraction().to_string(),
        _ => (random.below(100) as i64 - 50).to_string(),
    };
    score.into_bytes()
}

/// Returns commands that make the value of a key: of any type, with counts of elements that reach each type's
/// encodings.
pub fn value(random: &mut Random, key: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let count = *random.pick(&[1, 2, 5, 20, 70, 200, 600, 1500]);
    let command = |name: &str| vec![name.as_bytes().to_vec(), key.to_vec()];
    let (mut made, mut last) = (Vec::new(), Vec::new());
    let mut first;
    match random.below(7) {
        0 => {
            let mut set = command("SET");
            set.push(if random.percent(20) { text(random).repeat(count) } else { text(random) });
            return vec![set];
        }
        1 => {
            for _ in 0..count {
                last.extend([text(random)]);
            }
            first = command("RPUSH");
        }
        2 => {
            let numbers = random.percent(40);
            let most = *random.pick(&[1 << 15, 1 << 31, i64::MAX as u64]);
            for _ in 0..count {
                last.push(if numbers { random.below(most).to_string().into_bytes() } else { text(random) });
            }
            first = command("SADD");
        }
        3 => {
            for _ in 0..count {
                last.extend([score(random), text(random)]);
            }
            first = command("ZADD");
        }
        4 => {
            for n in 0..count as u64 {
                let mut add = command("XADD");
                add.push(format!("{}-{}", 5 + n / 3, n % 3).into_bytes());
                for _ in 0..1 + if random.percent(30) { random.below(3) } else { 0 } {
                    add.extend([if random.percent(80) { b"name".to_vec() } else { text(random) }, text(random)]);
                }
                made.push(add);
            }
            for n in (0..count as u64).filter(|_| random.percent(5)).collect::<Vec<_>>() {
                made.push([command("XDEL"), vec![format!("{}-{}", 5 + n / 3, n % 3).into_bytes()]].concat());
            }
            for group in 0..random.below(3) {
                let name = format!("group {group}").into_bytes();
                let from = format!("{}-0", 4 + random.below(count as u64 / 2 + 1)).into_bytes();
                made.push(vec![b"XGROUP".into(), b"CREATE".into(), key.to_vec(), name.clone(), from]);
                for consumer in 0..random.below(4) {
                    let consumer = format!("consumer {consumer}").into_bytes();
                    let count = (1 + random.below(300)).to_string().into_bytes();
                    let read =
                        [b"XREADGROUP".to_vec(), b"GROUP".into(), name.clone(), consumer, b"COUNT".into(), count];
                    made.push([&read[..], &[b"STREAMS".to_vec(), key.to_vec(), b">".into()]].concat());
                }
            }
            return made;
        }
        _ => {
            for _ in 0..count {
                last.extend([text(random), text(random)]);
            }
            first = command("HSET");
        }
    }
    first.extend(last);
    vec![first]
}
