//! A server whose member was removed from its Raft group, and how it comes back: on a fresh directory, as a new member.

mod process;

use process::group::{Group, QUICK, raft};
use process::{Server, TempDir, wait_until};

#[test]
fn a_server_whose_member_was_removed_comes_back_on_a_fresh_directory() {
    let mut group = Group::start(&["--enable-debug-command", "yes"]);
    let gone = 2;
    if group.leader() == gone {
        group.hand_over(gone, 0);
    }
    let leader = group.leader();
    let mut client = group.client(leader);
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    wait_until("it is taken out", || client.ask("RAFT.NODE REMOVE 3") == "+OK\r\n");
    // On its old directory the server is a member for good.
    let join = format!("RAFT.CLUSTER JOIN 127.0.0.1:{}", group.ports[1 - leader]);
    let init = format!("RAFT.CLUSTER INIT 127.0.0.1:{}", group.ports[gone]);
    let refused = "-ERR this server was removed from its Raft group: to bring this server back, start it on an empty \
                   directory without 'raft-node-id' and 'raft-peers', and say RAFT.CLUSTER JOIN there\r\n";
    let mut removed = group.client(gone);
    let says = |removed: &mut _| {
        let fault = raft(removed, "fault");
        fault.starts_with("member 3 was removed from the group") && fault.contains("and say RAFT.CLUSTER JOIN there")
    };
    wait_until("it says how it comes back", || says(&mut removed));
    assert_eq!([removed.ask(&join), removed.ask(&init)], [refused, refused]);
    let reset = removed.ask("RAFT.CLUSTER RESET");
    assert!(reset.starts_with("-ERR this server is not the leader") || reset.starts_with("-CLUSTERDOWN"), "{reset}");
    // A restart changes nothing about that.
    group.kill(gone);
    group.begin(gone);
    let mut removed = group.client(gone);
    wait_until("it says how it comes back", || says(&mut removed));
    // The directives of before make it that member on any directory.
    group.kill(gone);
    group.dirs[gone] = TempDir::new();
    group.begin(gone);
    let mut removed = group.client(gone);
    wait_until("it says how it comes back", || says(&mut removed));
    assert_eq!(removed.ask(&join), refused);
    // Without them it is a server like any other, and may have the address and the number of before.
    group.kill(gone);
    group.dirs[gone] = TempDir::new();
    let more = [&QUICK[..], &group.more].concat();
    let start = |group: &Group| Server::start_at(group.dirs[gone].path(), group.ports[gone], &more);
    group.servers[gone] = Some(start(&group));
    assert_eq!(group.client(gone).ask(&join), "+OK\r\n");
    let votes = |line: &str| line.contains(":id=3,") && line.contains(",part=voter,");
    wait_until("it votes", || client.ask("INFO raft").lines().any(votes));
    group.settle();
    group.kill(gone);
    group.servers[gone] = Some(start(&group));
    group.settle();
    let digests = group.digests();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    // The group needs it for a majority.
    group.kill(leader);
    assert_eq!(group.client(group.leader()).ask("GET key"), "$5\r\nvalue\r\n");
}
