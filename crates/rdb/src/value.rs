//! Values as they lie in a file, and how each form (`form.rs`) is taken apart.

use crate::encoded::{self, Begun};
use crate::error::{Damage, Error, Failure, Fault, Stop, Why};
use crate::event::Part;
use crate::form::Form;
use crate::intset::{self, LongIntset};
use crate::item::{ALONE, Item, Items, score_of};
use crate::listpack::{Listpack, LongListpack};
use crate::source::{Source, TAKE_MAX};
use crate::stream::{self, Scratch};
use crate::text::{WHOLE_BYTES_MAX, Window};
use crate::ziplist::{LongZiplist, Ziplist};
use crate::zipmap::{LongZipmap, Zipmap};

/// The kinds of containers of a quicklist.
const PLAIN: u64 = 1;
const PACKED: u64 = 2;

/// The latest deadline of a field.
const FIELD_DEADLINE_MAX_MS: u64 = (1 << 48) - 2;

/// Takes values from a source, with buffers that are kept from value to value.
#[derive(Debug)]
pub struct Reader<S> {
    pub source: S,
    first: Vec<u8>,
    second: Vec<u8>,
    pub(crate) compressed: Vec<u8>,
    /// The name of a key, which is kept while its value is read.
    pub(crate) name: Vec<u8>,
    scratch: Scratch,
    /// Longer strings, also those with elements in them, are read piece by piece.
    whole_bytes: u64,
}

/// The outcome of reading a value: how many elements it has.
pub type Elements = u64;

impl<S: Source> Reader<S> {
    pub fn new(source: S) -> Reader<S> {
        let (first, second, compressed, name) = Default::default();
        Reader { source, first, second, compressed, name, scratch: Scratch::default(), whole_bytes: WHOLE_BYTES_MAX }
    }

    /// Reads strings of more than `whole_bytes` piece by piece, which changes nothing but how much is held.
    pub(crate) fn whole_up_to(self, whole_bytes: u64) -> Reader<S> {
        Reader { whole_bytes, ..self }
    }

    /// Reads a string that is not part of a value.
    pub(crate) fn string(&mut self) -> Result<&[u8], Error> {
        encoded::string(&mut self.source, &mut self.first, &mut self.compressed)?;
        Ok(&self.first)
    }

    /// Reads two strings that are not parts of a value.
    pub(crate) fn strings(&mut self) -> Result<(&[u8], &[u8]), Error> {
        encoded::string(&mut self.source, &mut self.first, &mut self.compressed)?;
        encoded::string(&mut self.source, &mut self.second, &mut self.compressed)?;
        Ok((&self.first, &self.second))
    }

    /// Reads a value, gives its parts to `each` and says how many elements it has; a stream counts with its head. A
    /// long string is given in several parts, each but the last of `TAKE_MAX` bytes, and is one element.
    pub fn value<E>(
        &mut self,
        form: Form,
        mut each: impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<Elements, Failure<E>> {
        match form {
            Form::String => {
                let Reader { source, first, compressed, .. } = self;
                let long = match encoded::begin_in_place(source, self.whole_bytes, first, compressed)? {
                    Begun::Whole(text) => {
                        each(Part::String(text)).map_err(Failure::Sink)?;
                        return Ok(1);
                    }
                    Begun::Long(long) => long,
                };
                let mut text = long.of(source);
                while text.rest() > 0 {
                    let piece = text.rest().min(TAKE_MAX as u64) as usize;
                    each(Part::String(text.take(piece)?)).map_err(Failure::Sink)?;
                }
                Ok(1)
            }
            Form::List | Form::Set => self.elements(&mut each),
            Form::ZsetDigits | Form::Zset => self.scored(form, &mut each),
            Form::Hash => self.fields(&mut each),
            Form::TimedHash | Form::TimedHashEarly => self.timed_fields(form, &mut each),
            Form::ListQuicklist => {
                let (mut nodes, mut elements) = (encoded::length(&mut self.source)?, 0);
                while nodes > 0 {
                    elements += self.packed(Form::ListZiplist, &mut each)?;
                    nodes -= 1;
                }
                Ok(elements)
            }
            Form::ListQuicklist2 => self.quicklist(&mut each),
            Form::Stream1 | Form::Stream2 | Form::Stream3 | Form::Stream4 | Form::Stream5 => {
                let Reader { source, first, compressed, scratch, whole_bytes, .. } = self;
                stream::read(source, form, *whole_bytes, first, compressed, scratch, &mut each)
            }
            Form::ModuleOld | Form::Module => {
                Err(self.source.error(Why::Unsupported("the value is data of a module")).into())
            }
            Form::TimedHashListpack => {
                // The first deadline, which the fields have as well.
                self.source.skip(8)?;
                self.packed(form, &mut each)
            }
            _ => self.packed(form, &mut each),
        }
    }

    /// Reads a string of a value into `first`.
    fn element<E>(&mut self, each: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(), Failure<E>> {
        let Reader { source, first, compressed, whole_bytes, .. } = self;
        encoded::announced(source, *whole_bytes, first, compressed, 0, each)
    }

    /// Reads two strings of a value.
    fn pair<E>(&mut self, each: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(&[u8], &[u8]), Failure<E>> {
        let Reader { source, first, second, compressed, whole_bytes, .. } = self;
        encoded::trim(second);
        encoded::announced(source, *whole_bytes, first, compressed, 0, each)?;
        encoded::announced(source, *whole_bytes, second, compressed, first.len(), each)?;
        Ok((first, second))
    }

    fn elements<E>(&mut self, each: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<Elements, Failure<E>> {
        let count = encoded::length(&mut self.source)?;
        for _ in 0..count {
            self.element(each)?;
            each(Part::Element(&self.first)).map_err(Failure::Sink)?;
        }
        Ok(count)
    }

    fn scored<E>(
        &mut self,
        form: Form,
        each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<Elements, Failure<E>> {
        let count = encoded::length(&mut self.source)?;
        for _ in 0..count {
            self.element(each)?;
            let score = match form {
                Form::Zset => Some(f64::from_le_bytes(self.source.array()?)),
                _ => match self.source.byte()? {
                    255 => Some(f64::NEG_INFINITY),
                    254 => Some(f64::INFINITY),
                    253 => None,
                    digits => score_of(self.source.take(usize::from(digits))?),
                },
            };
            let score = score.filter(|score| !score.is_nan()).ok_or_else(|| self.source.corrupt(NO_SCORE))?;
            each(Part::Scored(&self.first, score)).map_err(Failure::Sink)?;
        }
        Ok(count)
    }

    fn fields<E>(&mut self, each: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<Elements, Failure<E>> {
        let count = encoded::length(&mut self.source)?;
        for _ in 0..count {
            let (field, value) = self.pair(each)?;
            each(Part::Field { field, value, deadline_ms: None }).map_err(Failure::Sink)?;
        }
        Ok(count)
    }

    fn timed_fields<E>(
        &mut self,
        form: Form,
        each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<Elements, Failure<E>> {
        // Deadlines lie behind the first one, plus one, so that zero is none.
        let first_ms = match form {
            Form::TimedHash => u64::from_le_bytes(self.source.array()?).wrapping_sub(1),
            _ => 0,
        };
        let count = encoded::length(&mut self.source)?;
        for _ in 0..count {
            let deadline_ms = match encoded::length(&mut self.source)? {
                0 => None,
                behind => Some(first_ms.wrapping_add(behind)),
            };
            if deadline_ms.is_some_and(|deadline| deadline > FIELD_DEADLINE_MAX_MS) {
                return Err(self.source.corrupt(NO_DEADLINE).into());
            }
            let (field, value) = self.pair(each)?;
            each(Part::Field { field, value, deadline_ms }).map_err(Failure::Sink)?;
        }
        Ok(count)
    }

    fn quicklist<E>(&mut self, each: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<Elements, Failure<E>> {
        let (mut nodes, mut elements) = (encoded::length(&mut self.source)?, 0);
        while nodes > 0 {
            nodes -= 1;
            match encoded::length(&mut self.source)? {
                PLAIN => {
                    self.element(each)?;
                    each(Part::Element(&self.first)).map_err(Failure::Sink)?;
                    elements += 1;
                }
                PACKED => elements += self.packed(Form::ListQuicklist2, each)?,
                _ => return Err(self.source.corrupt("a node of a list has an unknown form").into()),
            }
        }
        Ok(elements)
    }

    /// Reads a string that has elements in it.
    fn packed<E>(
        &mut self,
        form: Form,
        each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<Elements, Failure<E>> {
        let Reader { source, first, compressed, .. } = self;
        let mut elements = 0;
        let mut each = |part: Part<'_>| {
            elements += u64::from(!matches!(part, Part::Ahead { .. }));
            each(part).map_err(Stop::Sink)
        };
        let unpacked = match encoded::begin(source, self.whole_bytes, first, compressed)? {
            None => unpack(form, first, &mut each),
            Some(long) => unpack_long(form, Window::new(long.of(source)), &mut each),
        };
        unpacked.map_err(|stop| stop.at(&self.source))?;
        Ok(elements)
    }
}

const NO_SCORE: Damage = "the score of a member is no number";
const NO_DEADLINE: Damage = "the deadline of a field is no time";

/// Gives the elements that lie in one string to `each`.
fn unpack<E>(form: Form, bytes: &[u8], each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>) -> Result<(), Stop<E>> {
    match form {
        Form::ListZiplist => elements_of(Ziplist::new(bytes)?, each),
        Form::ListQuicklist2 | Form::SetListpack => elements_of(Listpack::new(bytes)?, each),
        Form::ZsetZiplist => scored_of(Ziplist::new(bytes)?, each),
        Form::ZsetListpack => scored_of(Listpack::new(bytes)?, each),
        Form::HashZiplist => fields_of(Ziplist::new(bytes)?, false, each),
        Form::HashListpack => fields_of(Listpack::new(bytes)?, false, each),
        Form::TimedHashListpack | Form::TimedHashListpackEarly => fields_of(Listpack::new(bytes)?, true, each),
        Form::HashZipmap => {
            let mut zipmap = Zipmap::new(bytes)?;
            while let Some((field, value)) = zipmap.next()? {
                each(Part::Field { field, value, deadline_ms: None })?;
            }
            Ok(())
        }
        Form::SetIntset => {
            let mut digits = itoa::Buffer::new();
            intset::numbers(bytes)?.try_for_each(|number| each(Part::Element(digits.format(number).as_bytes())))
        }
        _ => unreachable!("only these lie in one string"),
    }
}

/// Gives the elements that lie in a string that is not held at once to `each`.
fn unpack_long<S: Source, E>(
    form: Form,
    window: Window<'_, S>,
    each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>,
) -> Result<(), Stop<E>> {
    match form {
        Form::ListZiplist => elements_of(LongZiplist::new(window)?, each),
        Form::ListQuicklist2 | Form::SetListpack => elements_of(LongListpack::new(window)?, each),
        Form::ZsetZiplist => scored_of(LongZiplist::new(window)?, each),
        Form::ZsetListpack => scored_of(LongListpack::new(window)?, each),
        Form::HashZiplist => fields_of(LongZiplist::new(window)?, false, each),
        Form::HashListpack => fields_of(LongListpack::new(window)?, false, each),
        Form::TimedHashListpack | Form::TimedHashListpackEarly => fields_of(LongListpack::new(window)?, true, each),
        Form::HashZipmap => fields_of(LongZipmap::new(window)?, false, each),
        Form::SetIntset => elements_of(LongIntset::new(window)?, each),
        _ => unreachable!("only these lie in one string"),
    }
}

/// Announces the next item where it is long, with the `beside` bytes that are held beside it.
fn announce<E>(
    items: &mut impl Items,
    beside: usize,
    each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>,
) -> Result<(), Stop<E>> {
    let bytes = items.ahead()? as u64;
    if bytes > WHOLE_BYTES_MAX { each(Part::Ahead { bytes: bytes.saturating_add(beside as u64) }) } else { Ok(()) }
}

fn elements_of<E>(
    mut items: impl Items,
    each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>,
) -> Result<(), Stop<E>> {
    let mut digits = itoa::Buffer::new();
    loop {
        announce(&mut items, 0, each)?;
        let Some(item) = items.next()? else { return Ok(()) };
        each(Part::Element(item.bytes(&mut digits)))?;
    }
}

fn scored_of<E>(mut items: impl Items, each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>) -> Result<(), Stop<E>> {
    let mut member = Vec::new();
    while keep(&mut items, 0, &mut member, each)? {
        let score = items.other()?.score().ok_or(NO_SCORE)?;
        each(Part::Scored(&member, score))?;
    }
    Ok(())
}

fn fields_of<E>(
    mut items: impl Items,
    timed: bool,
    each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>,
) -> Result<(), Stop<E>> {
    let (mut field, mut kept, mut digits) = (Vec::new(), Vec::new(), itoa::Buffer::new());
    while keep(&mut items, 0, &mut field, each)? {
        if timed {
            if !keep(&mut items, field.len(), &mut kept, each)? {
                return Err(Fault::from(ALONE).into());
            }
            let deadline_ms = deadline_of(items.other()?)?;
            each(Part::Field { field: &field, value: &kept, deadline_ms })?;
        } else {
            announce(&mut items, field.len(), each)?;
            let value = items.other()?.bytes(&mut digits);
            each(Part::Field { field: &field, value, deadline_ms: None })?;
        }
    }
    Ok(())
}

/// Copies the next item, which is needed beside the one after it; returns whether there was one. A long one is
/// announced, with its copy and the `beside` bytes that are held beside them.
fn keep<E>(
    items: &mut impl Items,
    beside: usize,
    into: &mut Vec<u8>,
    each: &mut impl FnMut(Part<'_>) -> Result<(), Stop<E>>,
) -> Result<bool, Stop<E>> {
    encoded::trim(into);
    into.clear();
    let bytes = items.ahead()?;
    announce(items, beside.saturating_add(bytes), each)?;
    let Some(item) = items.next()? else { return Ok(false) };
    into.extend_from_slice(item.bytes(&mut itoa::Buffer::new()));
    Ok(true)
}

/// Returns the deadline in an item; zero is none.
fn deadline_of(item: Item<'_>) -> Result<Option<u64>, Damage> {
    let deadline = item.number().and_then(|number| u64::try_from(number).ok());
    let deadline = deadline.filter(|deadline| *deadline <= FIELD_DEADLINE_MAX_MS).ok_or(NO_DEADLINE)?;
    Ok((deadline != 0).then_some(deadline))
}
