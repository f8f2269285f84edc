//! The blocks of TSDL (CTF 1.8, §7.3): trace, environment, clocks, streams, events.
//!
//! Recursive descent with one token of look-ahead. Types are in `type_parser.rs`. [`DEPTH_MAX`]
//! bounds the recursion.

use std::collections::HashMap;
use std::sync::Arc;

use super::lexer::{Lexer, Token};
use super::node::{ClockNode, DEPTH_MAX, Document, EnvironmentValue, EventNode, Node, StreamNode};
use crate::read::error::{MetadataError, MetadataProblem};
use crate::read::trace::ClockClass;

/// A value after `=` in a block.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(i128),
    Text(String),
    /// Words separated by dots; often only one.
    Path(Vec<String>),
}

/// Parser that turns tokens into a [`Document`].
pub(crate) struct Parser<'text> {
    lexer: Lexer<'text>,
    /// The lexer's state before `token`.
    token_at: Lexer<'text>,
    /// The current token.
    pub(crate) token: Token,
    /// Place of the current token.
    pub(crate) place: (u32, u32),
    /// Types by name, innermost scope last; names include `struct x`, `variant x` and `enum x`.
    pub(crate) scopes: Vec<HashMap<String, Arc<Node>>>,
    /// Values of the trace's environment, which may be lengths of arrays.
    pub(crate) environment: Vec<(String, EnvironmentValue)>,
    nesting: u32,
}

pub(crate) type Parsed<T> = Result<T, MetadataError>;

/// Kinds of blocks in parsing order: each kind may use earlier kinds, wherever those are in the
/// text. (The order is babeltrace2's.)
const BLOCK_KEYWORDS: [&str; 5] = ["env", "clock", "", "trace", "stream"];
/// Index of type declarations in [`BLOCK_KEYWORDS`].
const DECLARATIONS_INDEX: usize = 2;
/// Maximum nesting of braces: types in a block, and the attributes of the innermost type.
const BRACES_MAX: u32 = DEPTH_MAX + 4;

/// Parses all of `text`.
pub(crate) fn parse(text: &[u8]) -> Parsed<Document> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        token_at: Lexer::new(text),
        token: Token::End,
        place: (1, 1),
        scopes: vec![HashMap::new()],
        environment: Vec::new(),
        nesting: 0,
    };
    parser.advance()?;
    let mut marks: [Vec<Lexer<'_>>; BLOCK_KEYWORDS.len()] = Default::default();
    let mut events = Vec::new();
    while parser.token != Token::End {
        parser.find_block(&mut marks, &mut events)?;
    }
    let mut document = Document { text_bytes: text.len(), ..Document::default() };
    for mark in marks.into_iter().flatten().chain(events) {
        parser.lexer = mark;
        parser.advance()?;
        parser.block(&mut document)?;
    }
    document.environment = parser.environment;
    Ok(document)
}

impl<'text> Parser<'text> {
    /// Returns the current token and advances to the next.
    pub(crate) fn advance(&mut self) -> Parsed<Token> {
        self.lexer.skip_blanks()?;
        self.place = self.lexer.place();
        self.token_at = self.lexer.clone();
        let next = self.lexer.token()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// Creates an error at the current token.
    pub(crate) fn error(&self, problem: MetadataProblem) -> MetadataError {
        MetadataError::at(self.place, problem)
    }

    pub(crate) fn unexpected(&self, expected: &'static str) -> MetadataError {
        self.error(MetadataProblem::Unexpected { found: self.token.shown(), expected })
    }

    pub(crate) fn at_symbol(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(found) if found == symbol)
    }

    pub(crate) fn at_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(found) if found == word)
    }

    /// Takes `symbol` if it is the current token; returns true if it was.
    pub(crate) fn take(&mut self, symbol: &str) -> Parsed<bool> {
        let found = self.at_symbol(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn expect(&mut self, symbol: &'static str) -> Parsed<()> {
        if self.take(symbol)? { Ok(()) } else { Err(self.unexpected(symbol)) }
    }

    pub(crate) fn word(&mut self) -> Parsed<String> {
        match self.advance_if(|token| matches!(token, Token::Word(_)))? {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.unexpected("a name")),
        }
    }

    fn advance_if(&mut self, wanted: impl Fn(&Token) -> bool) -> Parsed<Option<Token>> {
        if wanted(&self.token) { self.advance().map(Some) } else { Ok(None) }
    }

    /// Runs `body` one level deeper, with its own scope for type names.
    pub(crate) fn nested<T>(&mut self, body: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= DEPTH_MAX {
            return Err(self.error(MetadataProblem::TooComplex));
        }
        self.nesting += 1;
        self.scopes.push(HashMap::new());
        let result = body(self);
        self.scopes.pop();
        self.nesting -= 1;
        result
    }

    /// Finds the end of the block at the current token. Records the block's start in `marks` by its
    /// kind, or in `events` if it is an event.
    fn find_block(
        &mut self,
        marks: &mut [Vec<Lexer<'text>>; BLOCK_KEYWORDS.len()],
        events: &mut Vec<Lexer<'text>>,
    ) -> Parsed<()> {
        let Token::Word(word) = &self.token else {
            return if self.take(";")? { Ok(()) } else { Err(self.unexpected("a declaration")) };
        };
        let mark = self.token_at.clone();
        let kind = BLOCK_KEYWORDS.iter().position(|kind| kind == word);
        let is_declaration = match (kind, word.as_str()) {
            (Some(kind), _) => {
                marks[kind].push(mark);
                false
            }
            (None, "event") => {
                events.push(mark);
                false
            }
            // A call site of an event; no other block depends on it.
            (None, "callsite") => false,
            (None, _) => {
                marks[DECLARATIONS_INDEX].push(mark);
                true
            }
        };
        let mut open = 0;
        loop {
            let ends = open == 0 && self.at_symbol(";");
            if self.at_symbol("{") {
                open += 1;
                if open > BRACES_MAX {
                    return Err(self.error(MetadataProblem::TooComplex));
                }
            } else if self.at_symbol("}") {
                open = open.checked_sub(1).ok_or_else(|| self.unexpected("a declaration"))?;
            } else if self.token == Token::End {
                return Err(self.unexpected(if open > 0 { "'}'" } else { "';'" }));
            }
            let closes = open == 0 && !is_declaration && self.at_symbol("}");
            self.advance()?;
            if ends || closes {
                return self.take(";").map(drop);
            }
        }
    }

    fn block(&mut self, document: &mut Document) -> Parsed<()> {
        let Token::Word(word) = &self.token else {
            return if self.take(";")? { Ok(()) } else { Err(self.unexpected("a declaration")) };
        };
        match word.as_str() {
            "trace" => self.trace(document),
            "env" => self.environment(),
            "clock" => self.clock(document),
            "stream" => self.stream(document),
            "event" => self.event(document),
            _ => self.declaration(),
        }
    }

    /// Parses the entries of a block: type declarations, `path = value;` and `path := type;`.
    fn entries(
        &mut self,
        mut entry: impl FnMut(&mut Self, &str, Entry) -> Parsed<()>,
    ) -> Parsed<()> {
        self.advance()?;
        self.expect("{")?;
        self.nested(|parser| {
            while !parser.take("}")? {
                if parser.at_declaration() {
                    parser.declaration()?;
                    continue;
                }
                let path = parser.path()?.join(".");
                let what = if parser.take(":=")? {
                    Entry::Type(parser.type_specifier()?)
                } else {
                    parser.expect("=")?;
                    Entry::Value(parser.value()?)
                };
                entry(parser, &path, what)?;
                parser.expect(";")?;
            }
            Ok(())
        })?;
        self.take(";").map(drop)
    }

    /// Parses words separated by dots, e.g. `stream.event.header`.
    pub(crate) fn path(&mut self) -> Parsed<Vec<String>> {
        let mut path = vec![self.word()?];
        while self.take(".")? || self.take("->")? {
            path.push(self.word()?);
        }
        Ok(path)
    }

    pub(crate) fn value(&mut self) -> Parsed<Value> {
        match &self.token {
            Token::Text(text) => {
                let text = text.clone();
                self.advance()?;
                Ok(Value::Text(text))
            }
            Token::Word(_) => self.path().map(Value::Path),
            _ => self.number().map(Value::Number),
        }
    }

    /// Parses a number with its sign.
    pub(crate) fn number(&mut self) -> Parsed<i128> {
        let negative = self.take("-")?;
        if !negative {
            self.take("+")?;
        }
        let Token::Number(number) = self.token else { return Err(self.unexpected("a number")) };
        self.advance()?;
        Ok(if negative { -i128::from(number) } else { i128::from(number) })
    }

    fn trace(&mut self, document: &mut Document) -> Parsed<()> {
        let place = self.place;
        let (mut major, mut minor) = (1, 8);
        self.entries(|parser, path, entry| {
            match (path, entry) {
                ("byte_order", Entry::Value(Value::Path(order))) => {
                    let big_endian = parser.byte_order(&order)?;
                    if document.big_endian.is_some_and(|before| Some(before) != big_endian) {
                        return Err(parser.error(MetadataProblem::Duplicate("byte_order")));
                    }
                    document.big_endian = big_endian;
                }
                ("uuid", Entry::Value(Value::Text(text))) => {
                    let uuid = parse_uuid(&text);
                    document.uuid =
                        Some(uuid.ok_or_else(|| parser.error(MetadataProblem::Value("uuid")))?);
                }
                ("packet.header", Entry::Type(node)) => document.packet_header = Some(node),
                ("major", Entry::Value(Value::Number(number))) => major = number,
                ("minor", Entry::Value(Value::Number(number))) => minor = number,
                _ => {}
            }
            Ok(())
        })?;
        if (major, minor) != (1, 8) {
            let problem = MetadataProblem::Version(format!("{major}.{minor}"));
            return Err(MetadataError::at(place, problem));
        }
        Ok(())
    }

    fn environment(&mut self) -> Parsed<()> {
        self.entries(|parser, path, entry| {
            let value = match entry {
                Entry::Value(Value::Number(number)) => EnvironmentValue::Number(number as i64),
                Entry::Value(Value::Text(text)) => EnvironmentValue::Text(text),
                Entry::Value(Value::Path(path)) => EnvironmentValue::Text(path.join(".")),
                Entry::Type(_) => return Err(parser.unexpected("'='")),
            };
            parser.environment.push((path.to_owned(), value));
            Ok(())
        })
    }

    fn clock(&mut self, document: &mut Document) -> Parsed<()> {
        let place = self.place;
        let mut clock = ClockClass::new();
        self.entries(|parser, path, entry| {
            let Entry::Value(value) = entry else { return Err(parser.unexpected("'='")) };
            parser.clock_attribute(&mut clock, path, value)
        })?;
        if clock.name.is_empty() {
            return Err(MetadataError::at(place, MetadataProblem::Value("clock name")));
        }
        // Old versions of LTTng do not declare their clock as absolute (babeltrace2's rule).
        let is_lttng = self.environment.iter().any(|(name, value)| {
            let is_tracer = |text: &String| text.starts_with("lttng");
            name == "tracer_name" && matches!(value, EnvironmentValue::Text(t) if is_tracer(t))
        });
        clock.id.clone_from(&clock.name);
        clock.absolute |= is_lttng && clock.name == "monotonic";
        document.clocks.push(ClockNode { clock, place });
        Ok(())
    }

    fn clock_attribute(&mut self, clock: &mut ClockClass, name: &str, value: Value) -> Parsed<()> {
        let out_of_range = |what| self.error(MetadataProblem::Value(what));
        match (name, value) {
            ("name", Value::Text(name)) => clock.name = name,
            ("name", Value::Path(name)) => clock.name = name.join("."),
            ("uuid", Value::Text(text)) => {
                clock.uuid = Some(parse_uuid(&text).ok_or_else(|| out_of_range("uuid"))?);
            }
            ("description", Value::Text(text)) => clock.description = Some(text),
            ("freq", Value::Number(number)) => {
                let frequency = u64::try_from(number).ok().filter(|&frequency| frequency > 0);
                clock.frequency = frequency.ok_or_else(|| out_of_range("clock frequency"))?;
            }
            ("precision", Value::Number(number)) => {
                clock.precision =
                    u64::try_from(number).map_err(|_| out_of_range("clock precision"))?;
            }
            ("offset_s", Value::Number(number)) => {
                clock.offset_seconds =
                    i64::try_from(number).map_err(|_| out_of_range("clock offset"))?;
            }
            ("offset", Value::Number(number)) => {
                clock.offset_cycles =
                    i64::try_from(number).map_err(|_| out_of_range("clock offset"))?;
            }
            ("absolute", value) => clock.absolute = self.boolean(&value, "absolute")?,
            ("uuid" | "freq" | "precision" | "offset_s" | "offset" | "name", _) => {
                return Err(out_of_range("clock attribute"));
            }
            _ => {}
        }
        Ok(())
    }

    fn stream(&mut self, document: &mut Document) -> Parsed<()> {
        let mut stream = StreamNode { place: self.place, ..StreamNode::default() };
        self.entries(|parser, path, entry| {
            match (path, entry) {
                ("id", Entry::Value(Value::Number(id))) => stream.id = Some(parser.id(id)?),
                ("packet.context", Entry::Type(node)) => stream.packet_context = Some(node),
                ("event.header", Entry::Type(node)) => stream.event_header = Some(node),
                ("event.context", Entry::Type(node)) => stream.event_context = Some(node),
                _ => {}
            }
            Ok(())
        })?;
        document.streams.push(stream);
        Ok(())
    }

    fn event(&mut self, document: &mut Document) -> Parsed<()> {
        let mut event = EventNode { place: self.place, ..EventNode::default() };
        self.entries(|parser, path, entry| {
            match (path, entry) {
                ("name", Entry::Value(Value::Text(name))) => event.name = Some(name),
                ("name", Entry::Value(Value::Path(name))) => event.name = Some(name.join(".")),
                ("id", Entry::Value(Value::Number(id))) => event.id = Some(parser.id(id)?),
                ("stream_id", Entry::Value(Value::Number(id))) => {
                    event.stream_id = Some(parser.id(id)?);
                }
                ("loglevel", Entry::Value(Value::Number(level))) => {
                    event.level = Some(level as i64)
                }
                ("model.emf.uri", Entry::Value(Value::Text(uri))) if !uri.is_empty() => {
                    event.emf_uri = Some(uri);
                }
                ("context", Entry::Type(node)) => event.context = Some(node),
                ("fields", Entry::Type(node)) => event.fields = Some(node),
                _ => {}
            }
            Ok(())
        })?;
        document.events.push(event);
        Ok(())
    }

    fn id(&self, number: i128) -> Parsed<u64> {
        u64::try_from(number).map_err(|_| self.error(MetadataProblem::Value("id")))
    }

    /// Parses a byte order: true for big endian; `None` for the trace's own byte order.
    pub(crate) fn byte_order(&self, order: &[String]) -> Parsed<Option<bool>> {
        match order {
            [order] if order == "le" => Ok(Some(false)),
            [order] if order == "be" || order == "network" => Ok(Some(true)),
            [order] if order == "native" => Ok(None),
            _ => Err(self.error(MetadataProblem::Value("byte_order"))),
        }
    }
}

/// An entry of a block.
enum Entry {
    Value(Value),
    Type(Arc<Node>),
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}
