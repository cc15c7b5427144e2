//! The first line of a script, `#!lua flags=…`, or of a library, `#!lua name=…`.

use haypile_resp::inline;

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

/// The first line of a library as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryHead {
    pub name: Vec<u8>,
    /// The bytes of the line, its end left out.
    pub bytes: usize,
}

impl LibraryHead {
    /// Reads the first line of a library.
    ///
    /// # Errors
    /// Redis's reply to a line that is wrong.
    pub fn of_library(text: &[u8]) -> Result<LibraryHead, Vec<u8>> {
        const INVALID: &[u8] = b"ERR Invalid library metadata";
        if !text.starts_with(b"#!") {
            return Err(b"ERR Missing library metadata".to_vec());
        }
        let bytes = text.iter().position(|byte| *byte == b'\n').ok_or(INVALID)?;
        let words = inline::split(&text[..bytes]).map_err(|_| INVALID)?;
        let mut words = words.as_args().iter();
        let engine = words.next().unwrap_or_default().get(2..).unwrap_or_default().to_vec();
        let mut name: Option<Vec<u8>> = None;
        for word in words {
            let value = word.split_at_checked(5).filter(|(option, _)| option.eq_ignore_ascii_case(b"name="));
            let Some((_, value)) = value else {
                return Err([b"ERR Invalid metadata value given: ", word].concat());
            };
            if name.replace(value.to_vec()).is_some() {
                return Err(b"ERR Invalid metadata value, name argument was given multiple times".to_vec());
            }
        }
        let name = name.ok_or(b"ERR Library name was not given")?;
        check_name(&name)?;
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err([b"ERR Engine '", &engine[..], b"' not found"].concat());
        }
        Ok(LibraryHead { name, bytes })
    }
}

/// Looks at the name of a library or a function.
///
/// # Errors
/// Redis's reply to one that has other characters, or none.
pub(crate) fn check_name(name: &[u8]) -> Result<(), &'static [u8]> {
    match !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        true => Ok(()),
        false => {
            Err(b"ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                       character long")
        }
    }
}
