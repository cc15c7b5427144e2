//! The flags and ACL categories of commands.
//!
//! Owns their names, their order in replies and the sets of them. Which command has which follows from its entry
//! (`table/mod.rs`); what a flag forbids is decided by the engine.

/// An enumeration of words, and a set of them as bits: the position of a word is its bit.
macro_rules! words {
    ($(#[$about:meta])* $word:ident, $(#[$about_set:meta])* $set:ident {
        $($(#[$about_variant:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $word {
            $($(#[$about_variant])* $variant,)*
        }

        impl $word {
            /// All words, in the order of replies.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The word of this name, in any case.
            pub fn named(name: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.name().as_bytes().eq_ignore_ascii_case(name))
            }
        }

        $(#[$about_set])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            #[inline]
            pub const fn has(self, word: $word) -> bool {
                self.0 & (1 << word as u32) != 0
            }

            pub const fn add(&mut self, word: $word) {
                self.0 |= 1 << word as u32;
            }

            /// The set as a number: each word is the bit of its place among all.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// The words of the set, in the order of replies.
            pub fn iter(self) -> impl Iterator<Item = $word> {
                $word::ALL.iter().copied().filter(move |&word| self.has(word))
            }
        }
    };
}

words! {
    /// The flags of COMMAND INFO.
    Flag,
    /// A set of flags.
    Flags {
        Write = "write",
        Readonly = "readonly",
        /// The command is refused when the memory budget is spent.
        Denyoom = "denyoom",
        Admin = "admin",
        Pubsub = "pubsub",
        Noscript = "noscript",
        Blocking = "blocking",
        /// The command runs while the data is being loaded.
        Loading = "loading",
        /// The command runs on a replica that has lost its master.
        Stale = "stale",
        SkipMonitor = "skip_monitor",
        SkipSlowlog = "skip_slowlog",
        Asking = "asking",
        /// The command's time does not depend on the amount of data.
        Fast = "fast",
        /// The command runs before the client is authenticated.
        NoAuth = "no_auth",
        MayReplicate = "may_replicate",
        NoMandatoryKeys = "no_mandatory_keys",
        NoAsyncLoading = "no_async_loading",
        /// The command is refused in MULTI.
        NoMulti = "no_multi",
        /// The legacy first/last/step triple does not find all keys.
        Movablekeys = "movablekeys",
        /// The command runs while a script blocks the server.
        AllowBusy = "allow_busy",
    }
}

words! {
    /// The ACL categories; their names here have no `@`.
    Category,
    /// A set of ACL categories.
    Categories {
        Keyspace = "keyspace",
        Read = "read",
        Write = "write",
        Set = "set",
        Sortedset = "sortedset",
        List = "list",
        Hash = "hash",
        String = "string",
        Bitmap = "bitmap",
        Hyperloglog = "hyperloglog",
        Geo = "geo",
        Stream = "stream",
        Pubsub = "pubsub",
        Admin = "admin",
        Fast = "fast",
        Slow = "slow",
        Blocking = "blocking",
        Dangerous = "dangerous",
        Connection = "connection",
        Transaction = "transaction",
        Scripting = "scripting",
    }
}
