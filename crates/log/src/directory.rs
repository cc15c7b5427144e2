//! The name of a data directory, by which files know where they belong.

/// The name of a data directory: files that name another one were not written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryId(pub [u8; 16]);

impl DirectoryId {
    /// A name that no other directory has.
    pub fn random() -> DirectoryId {
        let mut bytes = [0; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .expect("the kernel's random source always gives 16 bytes");
        DirectoryId(bytes)
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<DirectoryId> {
        let digits = Some(text).filter(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u128::from_str_radix(digits, 16).ok().map(|number| DirectoryId(number.to_be_bytes()))
    }
}

impl std::fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
