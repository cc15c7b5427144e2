//! SORT of more than fits into memory, and what it leaves as it is.

mod runner;

use haypile_store::testing::memory_store;
use runner::{Client, Shown};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn texts(shown: Shown) -> Vec<String> {
    match shown {
        Shown::Bulk(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Shown::Word(word) => vec![word],
        Shown::List(elements) => elements.into_iter().flat_map(texts).collect(),
    }
}

#[test]
fn sorting_leaves_an_encoding_as_it_is() {
    let db = memory_store();
    let mut client = Client::new(&db);
    client.call(&words("ZADD z 1 2 2 1"));
    assert_eq!(texts(client.call(&words("SORT z"))), ["1", "2"]);
    assert_eq!(texts(client.call(&words("OBJECT ENCODING z"))), ["listpack"]);
}

/// Seventy thousand elements and their weights take more than is sorted in memory.
#[test]
fn what_is_too_much_for_memory_is_sorted_by_the_store() {
    const COUNT: usize = 70_000;
    let db = memory_store();
    let mut client = Client::new(&db);
    // Each number once, in an order that jumps about; 48,271 is prime.
    let numbers: Vec<usize> = (0..COUNT).map(|n| n * 48_271 % COUNT).collect();
    for part in numbers.chunks(1000) {
        let mut command = words("RPUSH l");
        command.extend(part.iter().map(|number| format!("{number}.{:060}", 0).into_bytes()));
        client.call(&command);
    }
    let element = |number: usize| format!("{number}.{:060}", 0);
    let sorted: Vec<String> = (0..COUNT).map(element).collect();
    assert!(texts(client.call(&words("SORT l"))) == sorted, "as a reply");
    assert_eq!(texts(client.call(&words("SORT l DESC LIMIT 1 2"))), [element(COUNT - 2), element(COUNT - 3)]);
    let last = [element(numbers[COUNT - 1]), element(numbers[COUNT - 2])];
    assert_eq!(texts(client.call(&words("SORT l BY nosort DESC LIMIT 0 2"))), last, "from the tail");
    client.call(&words("SORT l STORE sorted"));
    assert!(texts(client.call(&words("LRANGE sorted 0 -1"))) == sorted, "stored");
    let mut by_text = sorted;
    by_text.sort();
    assert!(texts(client.call(&words("SORT sorted ALPHA"))) == by_text, "as texts");
}
