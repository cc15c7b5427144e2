//! The first line of a script or library, `#!lua name=… flags=…`.

/// The flags of a script or a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    /// All flags by name.
    pub const NAMES: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

    /// Sets a flag; false if there is none of this name.
    pub fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// The names of the flags that are set.
    pub fn names(&self) -> Vec<&'static str> {
        let set = [self.no_writes, self.allow_oom, self.allow_stale, self.no_cluster, self.allow_cross_slot_keys];
        Flags::NAMES.into_iter().zip(set).filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }
}

/// The first line of a script as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shebang {
    /// Nothing where there is no such line: the script then has no flags, and may do what scripts could before there
    /// were any.
    pub flags: Option<Flags>,
    /// The bytes of the line, its end left out: Lua counts it as the first line, and sees none of it.
    pub bytes: usize,
}

impl Shebang {
    /// Reads the first line of a script.
    ///
    /// # Errors
    /// Redis's reply to a line that is wrong.
    pub fn of_script(text: &[u8]) -> Result<Shebang, Vec<u8>> {
        if !text.starts_with(b"#!") {
            return Ok(Shebang::default());
        }
        let Some(bytes) = text.iter().position(|byte| *byte == b'\n') else {
            return Err(b"ERR Invalid script shebang".to_vec());
        };
        let mut words = text[..bytes].split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let engine = words.next().unwrap_or_default();
        if engine != b"#!lua" {
            return Err([b"ERR Unexpected engine in script shebang: ", engine].concat());
        }
        let mut flags = Flags::default();
        for word in words {
            let Some(names) = word.strip_prefix(b"flags=") else {
                return Err([b"ERR Unknown lua shebang option: ", word].concat());
            };
            for name in names.split(|byte| *byte == b',').filter(|_| !names.is_empty()) {
                if !flags.set(name) {
                    return Err([b"ERR Unexpected flag in script shebang: ", name].concat());
                }
            }
        }
        Ok(Shebang { flags: Some(flags), bytes })
    }
}
