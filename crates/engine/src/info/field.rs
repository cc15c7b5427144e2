//! The fields of INFO: name, source of the value, and meaning of each. INFO, /metrics and docs/info.md walk
//! the same tables of fields.

use crate::run::engine::Engine;

/// A line of INFO.
pub(crate) struct Field {
    pub name: &'static str,
    pub source: Source,
    /// The meaning of the value, or, for a constant, why it is one.
    pub about: &'static str,
}

/// The origin of a value, and what kind of number it is.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// A number that only grows, until CONFIG RESETSTAT or the end of the process.
    Counter(fn(&Engine) -> u64),
    Gauge(fn(&Engine) -> u64),
    /// A number with so many decimals that only grows.
    RealCounter(fn(&Engine) -> f64, usize),
    Real(fn(&Engine) -> f64, usize),
    Text(fn(&Engine) -> String),
    /// A fact that cannot be otherwise here.
    Constant(&'static str),
}

impl Field {
    pub fn value(&self, engine: &Engine) -> String {
        match self.source {
            Source::Counter(number) | Source::Gauge(number) => number(engine).to_string(),
            Source::RealCounter(number, decimals) | Source::Real(number, decimals) => {
                format!("{:.decimals$}", number(engine))
            }
            Source::Text(text) => text(engine),
            Source::Constant(text) => text.into(),
        }
    }

    /// Returns the name of the field's kind, for people.
    pub fn kind(&self) -> &'static str {
        match self.source {
            Source::Counter(_) | Source::RealCounter(..) => "counter",
            Source::Gauge(_) | Source::Real(..) => "gauge",
            Source::Text(_) => "text",
            Source::Constant(_) => "constant",
        }
    }
}

pub(crate) const fn counter(name: &'static str, number: fn(&Engine) -> u64, about: &'static str) -> Field {
    Field { name, source: Source::Counter(number), about }
}

pub(crate) const fn gauge(name: &'static str, number: fn(&Engine) -> u64, about: &'static str) -> Field {
    Field { name, source: Source::Gauge(number), about }
}

pub(crate) const fn text(name: &'static str, text: fn(&Engine) -> String, about: &'static str) -> Field {
    Field { name, source: Source::Text(text), about }
}

pub(crate) const fn constant(name: &'static str, value: &'static str, why: &'static str) -> Field {
    Field { name, source: Source::Constant(value), about: why }
}

pub(crate) const fn real(
    name: &'static str,
    number: fn(&Engine) -> f64,
    decimals: usize,
    about: &'static str,
) -> Field {
    Field { name, source: Source::Real(number, decimals), about }
}

pub(crate) const fn real_counter(
    name: &'static str,
    number: fn(&Engine) -> f64,
    decimals: usize,
    about: &'static str,
) -> Field {
    Field { name, source: Source::RealCounter(number, decimals), about }
}
