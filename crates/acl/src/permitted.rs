//! The commands that a selector permits.
//!
//! The rules are applied to a bit for each command as they come, and kept as well, as Redis 7.2 shows them: each
//! replaces those before it that it makes void.

use crate::catalog::Catalog;
use crate::word::is_word;
use crate::wrong::Wrong;
use std::collections::BTreeMap;

/// A set of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permitted {
    /// Every command, those of later versions too.
    /// Invariant: it is set where the last rule for all commands permits them, and no rule behind it takes one away.
    all: bool,
    /// The last rule for all commands permits them.
    base: bool,
    /// The permitted commands, a bit for each number; a command beyond the end is not permitted.
    bits: Vec<u64>,
    /// The first arguments with which a command may be called that is not permitted as such.
    /// In lower case, sorted.
    first_arguments: BTreeMap<u16, Vec<Vec<u8>>>,
    /// The rules behind the last one for all commands.
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    permits: bool,
    /// A full name, `name|first argument`, or `@category`, in lower case.
    name: Vec<u8>,
}

impl Permitted {
    /// Returns whether the rules permit every command, whatever its arguments.
    pub fn is_all(&self) -> bool {
        self.all
    }

    #[inline]
    pub fn has(&self, command: u16, first_argument: Option<&[u8]>) -> bool {
        self.all || self.has_bit(command) || self.has_first_argument(command, first_argument)
    }

    fn has_bit(&self, command: u16) -> bool {
        self.bits.get(usize::from(command / 64)).is_some_and(|word| word & (1 << (command % 64)) != 0)
    }

    fn has_first_argument(&self, command: u16, argument: Option<&[u8]>) -> bool {
        let (Some(permitted), Some(argument)) = (self.first_arguments.get(&command), argument) else { return false };
        permitted.iter().any(|other| other.eq_ignore_ascii_case(argument))
    }

    /// `+@all` and `-@all`.
    pub fn set_all(&mut self, permits: bool, catalog: &Catalog) {
        let bits = if permits { vec![u64::MAX; catalog.len().div_ceil(64)] } else { Vec::new() };
        *self = Permitted { all: permits, base: permits, bits, ..Permitted::default() };
    }

    /// `+name`, `-name`, `+@category`, `-@category` or `+name|first-argument`; `rule` is what stands behind the sign.
    pub fn apply(&mut self, permits: bool, rule: &[u8], catalog: &Catalog) -> Result<(), Wrong> {
        if let Some(category) = rule.strip_prefix(b"@") {
            if category.eq_ignore_ascii_case(b"all") {
                self.set_all(permits, catalog);
                return Ok(());
            }
            let bit = catalog.category(category).ok_or(Wrong::Unknown)?;
            for command in catalog.of_category(bit) {
                self.set_with_subcommands(command, permits, catalog);
            }
        } else if let Some(command) = catalog.find(rule) {
            self.set_with_subcommands(command, permits, catalog);
        } else {
            self.permit_first_argument(permits, rule, catalog)?;
        }
        self.remember(permits, rule.to_ascii_lowercase());
        Ok(())
    }

    fn permit_first_argument(&mut self, permits: bool, rule: &[u8], catalog: &Catalog) -> Result<(), Wrong> {
        let bar = rule.iter().rposition(|&byte| byte == b'|').filter(|_| permits).ok_or(Wrong::Unknown)?;
        let (name, argument) = (&rule[..bar], &rule[bar + 1..].to_ascii_lowercase()[..]);
        let command = catalog.find(name).ok_or(Wrong::Unknown)?;
        let named = catalog.get(command);
        if named.container.is_some() {
            return Err(Wrong::FirstArgumentOfSubcommand);
        }
        if argument.is_empty() || !is_word(argument) {
            return Err(Wrong::Syntax);
        }
        if !named.subcommands.is_empty() {
            return Err(Wrong::Unknown);
        }
        let arguments = self.first_arguments.entry(command).or_default();
        if let Err(place) = arguments.binary_search_by(|other| other[..].cmp(argument)) {
            arguments.insert(place, argument.to_vec());
        }
        Ok(())
    }

    fn set_with_subcommands(&mut self, command: u16, permits: bool, catalog: &Catalog) {
        self.set(command, permits);
        catalog.get(command).subcommands.clone().for_each(|subcommand| self.set(subcommand, permits));
    }

    fn set(&mut self, command: u16, permits: bool) {
        let word = usize::from(command / 64);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if permits {
            self.bits[word] |= 1 << (command % 64);
        } else {
            self.bits[word] &= !(1 << (command % 64));
        }
        self.first_arguments.remove(&command);
    }

    /// Keeps a rule in the place of those that it makes void: rules for the same name, or for what is below it.
    fn remember(&mut self, permits: bool, name: Vec<u8>) {
        let is_below = |other: &[u8]| other.strip_prefix(&name[..]).is_some_and(|rest| rest.starts_with(b"|"));
        self.rules.retain(|rule| rule.name != name && !is_below(&rule.name));
        self.rules.push(Rule { permits, name });
        self.all = self.base && self.rules.iter().all(|rule| rule.permits);
    }

    /// The rules, such as `-@all +get`.
    pub fn describe(&self, out: &mut Vec<u8>) {
        out.extend(if self.base { b"+@all" } else { b"-@all" });
        for rule in &self.rules {
            out.extend(if rule.permits { b" +" } else { b" -" });
            out.extend(&rule.name);
        }
    }
}
