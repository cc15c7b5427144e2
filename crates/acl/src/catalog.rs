//! The commands that rules can name, and the categories that they are in.

use std::collections::HashMap;
use std::ops::Range;

/// One command or subcommand, as rules see it.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name in lower case, with the container's name in front: `get`, `config|get`.
    pub full_name: String,
    /// The categories, each as the bit of its place among the catalog's.
    pub categories: u32,
    /// The number of the container, for a subcommand.
    pub container: Option<u16>,
    /// The numbers of the subcommands.
    pub subcommands: Range<u16>,
}

/// All commands of a server, by number.
#[derive(Debug)]
pub struct Catalog {
    commands: Vec<Named>,
    by_name: HashMap<String, u16>,
    categories: Vec<&'static str>,
}

impl Catalog {
    /// The commands in the order of their numbers, and the names of the categories, without `@`.
    pub fn new(commands: Vec<Named>, categories: Vec<&'static str>) -> Catalog {
        let by_name = commands.iter().zip(0..).map(|(command, id)| (command.full_name.clone(), id)).collect();
        Catalog { commands, by_name, categories }
    }

    /// The number of a command's full name, in any case.
    pub(crate) fn find(&self, full_name: &[u8]) -> Option<u16> {
        let name = std::str::from_utf8(full_name).ok()?.to_ascii_lowercase();
        self.by_name.get(&name).copied()
    }

    /// The bit of a category, whose name is given in any case and without `@`.
    pub(crate) fn category(&self, name: &[u8]) -> Option<u32> {
        let place = self.categories.iter().position(|category| category.as_bytes().eq_ignore_ascii_case(name))?;
        Some(1 << place)
    }

    pub(crate) fn get(&self, id: u16) -> &Named {
        &self.commands[id as usize]
    }

    /// The numbers of the commands of a category, given by its bit.
    pub(crate) fn of_category(&self, bit: u32) -> impl Iterator<Item = u16> {
        self.commands.iter().zip(0..).filter(move |(command, _)| command.categories & bit != 0).map(|(_, id)| id)
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }
}
