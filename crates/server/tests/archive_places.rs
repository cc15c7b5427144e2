//! Places of archives: one that has gone while the server runs, and those that can never be.

mod archives;
mod process;

use archives::{archiving, digest, digest_of, field_of, refuses, restored, succeeds, text, wait_for_archive};
use process::following::fill;
use process::{Server, TempDir, free_port, wait_until};

#[test]
fn a_place_that_has_gone_is_looked_at_before_it_is_written_to() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let (archive, aside) = (place.path().join("archive"), place.path().join("aside"));
    let server = archiving(dir.path(), &archive, &[]);
    let mut client = server.client();
    fill(&mut client, 0, 100);
    wait_for_archive(&mut client);
    // An empty directory is there, as where something was unmounted.
    std::fs::rename(&archive, &aside).expect("it is ours");
    std::fs::create_dir(&archive).expect("the directory is ours");
    fill(&mut client, 100, 200);
    let failure = |client: &mut _| field_of(client, "archive_last_failure");
    wait_until("it is noticed", || failure(&mut client).contains("is the place mounted?"));
    let port = server.port.to_string();
    let refused = refuses(&["backup", "--port", &port]);
    assert!(refused.contains("is the place mounted?"), "{refused}");
    assert_eq!(std::fs::read_dir(&archive).expect("it is there").count(), 0, "nothing was begun there");
    std::fs::remove_dir(&archive).and_then(|()| std::fs::rename(&aside, &archive)).expect("it is ours");
    wait_for_archive(&mut client);
    assert_eq!(field_of(&mut client, "archive_missing_records"), "");
    let digest_now = digest(&mut client);
    server.stop();
    assert!(succeeds(&["check", text(&archive)]).contains(": 0 defects"));
    let (_keep, data) = restored(&archive, &[]);
    assert_eq!(digest_of(&data), digest_now);
}

#[test]
fn a_place_that_can_never_be_is_refused_by_config_set_and_by_the_start() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    for (place, options, why) in [
        ("nfs://host/path", "region=eu", "an archive is in a directory, or at s3://, gs:// or az://"),
        ("s3://", "region=eu", "'archive-to' cannot be used: s3://: "),
        ("s3://bucket/path", "flavour=x", "flavour"),
    ] {
        let refused = client.ask(&format!("CONFIG SET archive-to {place} archive-options {options}"));
        assert!(refused.starts_with("-ERR CONFIG SET failed (possibly related to argument 'archive-to')"), "{refused}");
        assert!(refused.contains(why), "{refused}");
        assert_eq!(field_of(&mut client, "archive_state"), "off");
        let other = TempDir::new();
        let started = process::fails(other.path(), free_port(), &["--archive-to", place, "--archive-options", options]);
        assert!(started.contains(why) && started.contains("'archive-to' cannot be used"), "{started}");
    }
    server.stop();
}
