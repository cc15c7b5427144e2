//! The engine's part in replication: what is known of masters and replicas (`facts`, and `marks` for how late replicas
//! are), a server that follows and leads again (`role`) or hands its part over (`failover`), the changes of the store
//! that this asks for (`exchange`), the locks under which a record of a master takes effect (`locks`), the commands of
//! a master that is no Haypile (`repeat`), replies that wait for replicas (`confirm` and `confirmations`), and the
//! messages that travel beside records (`messages`, `hear`). The connections are the server's, behind
//! `facts::Replicator`; CLIENT LIST shows them (`shown`).

pub(crate) mod confirm;
pub(crate) mod confirmations;
pub(crate) mod exchange;
pub(crate) mod facts;
pub(crate) mod failover;
pub(crate) mod hear;
pub(crate) mod locks;
pub(crate) mod marks;
pub(crate) mod messages;
pub(crate) mod repeat;
pub(crate) mod role;
pub(crate) mod shown;
pub(crate) mod stating;
