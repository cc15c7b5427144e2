//! The values of all directives, whether used or not.
//!
//! Parsing of a line or of CONFIG SET ends here; `crate::config` reads from here.

use crate::table::{self, Found, Row};
use crate::value::{Mode, Refusal, Value};

/// One value for each row of the table, at the row's position.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    values: Vec<Value>,
}

impl Values {
    /// Returns all defaults.
    pub fn defaults() -> Values {
        Values { values: table::rows().map(Row::default_value).collect() }
    }

    /// Parses and sets a directive. `durability` and `appendfsync` are two names for one thing, so each follows the
    /// other.
    pub fn set(&mut self, found: Found, words: &[&[u8]], mode: Mode) -> Result<(), Refusal> {
        let value = found.row.kind.parse(words, &self.values[found.position], mode)?;
        self.put(found, value);
        Ok(())
    }

    /// Sets a directive to a parsed value.
    pub(crate) fn put(&mut self, found: Found, value: Value) {
        let fsync = value == Value::Choice(1);
        match found.row.name {
            "appendfsync" => self.put_one("durability", Value::Choice(u32::from(fsync))),
            "durability" if fsync => self.put_one("appendfsync", Value::Choice(1)),
            "durability" if *self.get("appendfsync") == Value::Choice(1) => {
                self.put_one("appendfsync", Value::Choice(0))
            }
            _ => {}
        }
        self.values[found.position] = value;
    }

    fn put_one(&mut self, name: &str, value: Value) {
        let found = table::find(name.as_bytes()).expect("the name is in the table");
        self.values[found.position] = value;
    }

    /// Returns the value at a row's position.
    pub fn at(&self, position: usize) -> &Value {
        &self.values[position]
    }

    /// Returns the value of a directive that is in the table.
    pub(crate) fn get(&self, name: &str) -> &Value {
        let found = table::find(name.as_bytes()).expect("the name is in the table");
        &self.values[found.position]
    }

    /// Returns the value of a directive as CONFIG GET prints it.
    pub(crate) fn print(&self, name: &str) -> Vec<u8> {
        let found = table::find(name.as_bytes()).expect("the name is in the table");
        found.row.kind.print(&self.values[found.position])
    }
}
