//! Searches that find more than an event loop may look at, than one reply holds and than memory should hold, with all
//! rows in the memtable and with all of them on a base that an event loop does not reach.

mod runner;

use haypile_store::testing::{TestStore, memory_store};
use haypile_types::geo::Position;
use runner::{Client, Shown};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn list(client: &mut Client, line: &str) -> Vec<String> {
    let Shown::List(elements) = client.call(&words(line)) else { panic!("{line}: a list") };
    let string = |element: &Shown| match element {
        Shown::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{line}: a string, not {other:?}"),
    };
    elements.iter().map(string).collect()
}

fn integer(client: &mut Client, line: &str) -> i64 {
    match client.call(&words(line)) {
        Shown::Word(word) => word.parse().unwrap_or_else(|_| panic!("{line}: {word}")),
        other => panic!("{line}: {other:?}"),
    }
}

/// The places in the set: what is found of them is more than eight megabytes, and is moved to rows in part.
const COUNT: u64 = 60_000;

fn name(number: u64) -> String {
    format!("{number:0200}")
}

fn place(number: u64) -> Position {
    let part = |multiplier: u64| (number * multiplier % 1_000_003) as f64 / 1_000_003.0;
    Position::new(10.0 + 2.0 * part(7919), 50.0 + 2.0 * part(104_729)).expect("it is on the map")
}

fn fill(client: &mut Client, settle: &dyn Fn()) {
    for part in (0..COUNT).collect::<Vec<_>>().chunks(3000) {
        let mut command = words("GEOADD g");
        for &number in part {
            let Position { longitude, latitude } = place(number);
            command.extend([
                longitude.to_string().into_bytes(),
                latitude.to_string().into_bytes(),
                name(number).into_bytes(),
            ]);
        }
        assert!(matches!(client.call(&command), Shown::Word(count) if count == part.len().to_string()));
    }
    settle();
}

#[test]
fn what_is_found_need_not_fit_into_memory() {
    let test = |store: &TestStore, settle: &dyn Fn()| {
        let mut client = Client::new(store);
        fill(&mut client, settle);
        let center = Position::new(11.0, 51.0).expect("it is on the map");
        let distance = |number: &u64| Position::of_score(place(*number).score()).distance_m(center);
        let mut near: Vec<u64> = (0..COUNT).filter(|number| distance(number) <= 60_000.0).collect();
        near.sort_by(|one, other| distance(one).total_cmp(&distance(other)));
        assert!(near.len() > 20_500, "{}", near.len());
        let names = |numbers: &[u64]| numbers.iter().map(|number| name(*number)).collect::<Vec<_>>();
        let search = "FROMLONLAT 11 51 BYRADIUS 60 km";
        assert_eq!(list(&mut client, &format!("GEOSEARCH g {search} ASC")), names(&near));
        let farthest: Vec<u64> = near.iter().rev().copied().collect();
        assert_eq!(list(&mut client, &format!("GEOSEARCH g {search} DESC")), names(&farthest));
        assert_eq!(list(&mut client, &format!("GEOSEARCH g {search} DESC COUNT 7")), names(&farthest[..7]));
        assert_eq!(list(&mut client, &format!("GEOSEARCH g {search} COUNT 20000")), names(&near[..20_000]));
        assert_eq!(list(&mut client, &format!("GEOSEARCH g {search} COUNT 2000 ANY")).len(), 2000);
        let mut unsorted = list(&mut client, &format!("GEOSEARCH g {search}"));
        let any = list(&mut client, &format!("GEOSEARCH g {search} COUNT 9000 ANY"));
        assert_eq!(any, unsorted[..9000], "the first that come");
        unsorted.sort();
        let mut all = names(&near);
        all.sort();
        assert_eq!(unsorted, all);
        assert_eq!(integer(&mut client, &format!("GEOSEARCHSTORE d g {search}")), near.len() as i64);
        let mut stored = list(&mut client, "ZRANGE d 0 -1");
        stored.sort();
        assert_eq!(stored, all);
        assert_eq!(integer(&mut client, &format!("GEOSEARCHSTORE d g {search} STOREDIST")), near.len() as i64);
        assert_eq!(list(&mut client, "ZRANGE d 0 99"), names(&near[..100]));
        let Shown::List(found) = client.call(&words(&format!("GEOSEARCH g {search} ASC WITHDIST"))) else {
            panic!("a list")
        };
        assert_eq!(found.len(), near.len());
    };
    let warm = memory_store();
    test(&warm, &|| {});
    let cold = memory_store();
    test(&cold, &|| {
        cold.flush_now().expect("flushes to memory");
        cold.base.set_cold(true);
    });
}
