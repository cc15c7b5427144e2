//! Rules of any bytes, and what they may not do. For a seeded test and for a fuzz target.

use crate::catalog::{Catalog, Named};
use crate::user::{Fresh, User};
use crate::users::Users;

/// Makes the catalog of a few commands: two categories, one container.
pub fn catalog() -> Catalog {
    let named = |full_name: &str, categories, container, subcommands| Named {
        full_name: full_name.to_owned(),
        categories,
        container,
        subcommands,
    };
    let commands = vec![
        named("get", 1, None, 0..0),
        named("set", 2, None, 0..0),
        named("config", 0, None, 3..5),
        named("config|get", 1, Some(2), 0..0),
        named("config|set", 2, Some(2), 0..0),
    ];
    Catalog::new(commands, vec!["read", "write"])
}

/// Reads bytes as the rules of one user, and as a file of users. What is taken can be written and read again as the
/// same; what is refused is refused with a text.
///
/// # Panics
/// Something happened that may not.
pub fn check_rules(catalog: &Catalog, bytes: &[u8]) {
    let fresh = Fresh { all_channels: bytes.len().is_multiple_of(2) };
    let words: Vec<&[u8]> = bytes.split(|&byte| byte == b' ').collect();
    let mut user = User::new(b"u", fresh);
    let taken = crate::user::merge_parentheses(&words).map(|rules| user.apply_all(&rules, catalog, fresh));
    match taken {
        Ok(Ok(())) => {
            let line = user.line();
            let again =
                Users::parse(&line, catalog, fresh).unwrap_or_else(|why| panic!("{}: {why:?}", line.escape_ascii()));
            assert_eq!(**again.get(b"u").expect("it is the user's"), user, "{}", line.escape_ascii());
        }
        Ok(Err((_, wrong))) => assert!(!wrong.text().is_empty()),
        Err(at) => assert!(at < words.len()),
    }
    // Clients may send in one word what files have in several.
    let mut user = User::new(b"u", fresh);
    if user.apply(bytes, catalog, fresh).is_ok() {
        let line = user.line();
        let again =
            Users::parse(&line, catalog, fresh).unwrap_or_else(|why| panic!("{}: {why:?}", line.escape_ascii()));
        assert_eq!(**again.get(b"u").expect("it is the user's"), user, "{}", line.escape_ascii());
    }
    match Users::parse(bytes, catalog, fresh) {
        Ok(users) => {
            assert_eq!(Users::parse(&users.file(), catalog, fresh).expect("a file is right"), users);
        }
        Err(wrong) => wrong.iter().for_each(|(line, why)| assert!(!why.text_in_file("f", *line).is_empty())),
    }
}
