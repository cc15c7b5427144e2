//! The orders of operators: each waits until the group has carried it out.

use crate::raft::machine::Data;
use haypile_commands::host::GroupOrder;
use haypile_engine::Order;
use haypile_raft::{Change, Fault, Member, Part, Role, Standing};
use std::time::{Duration, Instant};

/// How long an order waits at most: the group may have lost its majority.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Orders that wait.
#[derive(Default)]
pub struct Orders(Vec<(Order, Instant)>);

impl Orders {
    /// Begins to carry out an order, or refuses it.
    ///
    /// # Errors
    /// The member cannot go on.
    pub fn begin(&mut self, order: Order, member: &mut Member<Data<'_>>) -> Result<(), Fault> {
        let mut order = order;
        let begun = match &mut order.what {
            GroupOrder::AddMember { id, address } => {
                member.change(&Change::Add { id: *id, address: address.clone() })?
            }
            GroupOrder::RemoveMember { id } => member.change(&Change::Remove { id: *id })?,
            GroupOrder::ChangeUsers { change, record } if member.role() == Role::Leader => {
                member.machine().change_users(change).map(|made| *record = Some(made.0))
            }
            GroupOrder::ChangeUsers { .. } => Err("this member leads no more".into()),
            GroupOrder::Begin { .. } | GroupOrder::Join { .. } => Err("this server is in a Raft group already".into()),
            GroupOrder::Reset => unreachable!("who ends the member carries it out"),
            GroupOrder::TransferLead { to } => match target(member, *to) {
                Ok(id) => {
                    *to = Some(id);
                    member.transfer(id)?;
                    Ok(())
                }
                Err(why) => Err(why),
            },
        };
        match begun {
            Ok(()) => self.0.push((order, Instant::now() + WAIT_MAX)),
            Err(why) => order.answer(Err(why)),
        }
        Ok(())
    }

    /// Answers the orders that are carried out, or cannot be any more. Those of a member that has stopped to lead are
    /// given up.
    pub fn look(&mut self, member: &Member<Data<'_>>) {
        if self.0.is_empty() {
            return;
        }
        let (standing, now) = (member.standing(), Instant::now());
        for (order, until) in std::mem::take(&mut self.0) {
            let is_done = match &order.what {
                GroupOrder::AddMember { id, .. } => member.configuration().get(*id).is_some(),
                GroupOrder::RemoveMember { id } => member.configuration().get(*id).is_none(),
                GroupOrder::TransferLead { to } => *to == Some(standing.leader),
                GroupOrder::ChangeUsers { record, .. } => {
                    let through = member.machine().users_through();
                    standing.role == Role::Leader && record.is_some_and(|record| record <= through.0)
                }
                GroupOrder::Begin { .. } | GroupOrder::Join { .. } | GroupOrder::Reset => false,
            };
            let waits_for_other = matches!(order.what, GroupOrder::TransferLead { .. });
            match () {
                () if is_done => order.answer(Ok(())),
                () if now > until => order.answer(Err("that takes long, and may yet happen: see RAFT.INFO".into())),
                () if waits_for_other && gave_up(member, &standing) => {
                    order.answer(Err("the other member did not take over".into()));
                }
                () if standing.role == Role::Leader || waits_for_other => self.0.push((order, until)),
                () => drop(order),
            }
        }
    }
}

/// Whether a leader has given up to have another one lead.
fn gave_up(member: &Member<Data<'_>>, standing: &Standing) -> bool {
    standing.role == Role::Leader && !member.is_transferring()
}

/// Returns the member that is to lead: the one that is asked for, or the one that has most.
pub fn target(member: &Member<Data<'_>>, to: Option<u64>) -> Result<u64, String> {
    let standing = member.standing();
    let votes = |id: u64| member.configuration().get(id).is_some_and(|(_, part)| part == Part::Voter);
    match to {
        Some(id) if id == standing.leader => Err(format!("member {id} leads already")),
        Some(id) if !votes(id) => Err(format!("the group has no member {id} that votes")),
        Some(id) => Ok(id),
        None => {
            let others = standing.peers.iter().filter(|peer| peer.is_heard && votes(peer.id));
            others.max_by_key(|peer| peer.matched).map(|peer| peer.id).ok_or_else(|| "no other member can lead".into())
        }
    }
}
