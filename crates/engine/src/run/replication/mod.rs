//! The engine's part in replication: what is known of masters and replicas (`facts`), a server that follows and leads
//! again (`role`), the changes of the store that this asks for (`exchange`), and the locks under which a record of a
//! master takes effect (`locks`). The connections are the server's, behind `facts::Replicator`.

pub(crate) mod exchange;
pub(crate) mod facts;
pub(crate) mod locks;
pub(crate) mod role;
