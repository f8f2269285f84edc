//! The blocks of TSDL (CTF 1.8, §7.3): trace, environment, clocks, streams, events.
//!
//! Recursive descent with one token of look-ahead; types are in `type_parser.rs`. Recursion is
//! bounded by [`DEPTH_MAX`].

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{MetadataError, MetadataProblem};
use super::lexer::{Lexer, Token};
use super::node::{
    ClockNode, DEPTH_MAX, Document, EnvironmentValue, EventNode, Node, NodeKind, StreamNode,
};

/// What may stand behind `=`.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(i128),
    Text(String),
    /// A word, or words with dots between.
    Path(Vec<String>),
}

/// Reads tokens and builds a [`Document`].
pub(crate) struct Parser<'text> {
    lexer: Lexer<'text>,
    /// The token not yet taken.
    pub(crate) token: Token,
    /// Where it stands.
    pub(crate) place: (u32, u32),
    /// Names of types, innermost scope last; `struct x`, `variant x`, `enum x` among them.
    pub(crate) scopes: Vec<HashMap<String, Arc<Node>>>,
    nesting: u32,
}

pub(crate) type Parsed<T> = Result<T, MetadataError>;

/// Parses all of `text`.
pub(crate) fn parse(text: &[u8]) -> Parsed<Document> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        token: Token::End,
        place: (1, 1),
        scopes: vec![HashMap::new()],
        nesting: 0,
    };
    parser.advance()?;
    let mut document = Document::default();
    while parser.token != Token::End {
        parser.block(&mut document)?;
    }
    Ok(document)
}

impl Parser<'_> {
    /// Takes the current token and looks at the next.
    pub(crate) fn advance(&mut self) -> Parsed<Token> {
        self.lexer.skip_blanks()?;
        self.place = self.lexer.place();
        let next = self.lexer.token()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// An error at the current token.
    pub(crate) fn error(&self, problem: MetadataProblem) -> MetadataError {
        let (line, column) = self.place;
        MetadataError { line, column, problem }
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

    /// Takes `symbol` if it is next.
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

    /// Runs `body` one level deeper, with a scope of its own for names of types.
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

    /// A node, unless it is too deep.
    pub(crate) fn node(&self, kind: NodeKind) -> Parsed<Arc<Node>> {
        let depth = kind.depth();
        if depth > DEPTH_MAX {
            return Err(self.error(MetadataProblem::TooComplex));
        }
        Ok(Arc::new(Node { depth, kind }))
    }

    fn block(&mut self, document: &mut Document) -> Parsed<()> {
        let Token::Word(word) = &self.token else {
            return if self.take(";")? { Ok(()) } else { Err(self.unexpected("a declaration")) };
        };
        match word.as_str() {
            "trace" => self.trace(document),
            "env" => self.environment(document),
            "clock" => self.clock(document),
            "stream" => self.stream(document),
            "event" => self.event(document),
            "callsite" => self.entries(|_, _, _| Ok(())),
            _ => self.declaration(),
        }
    }

    /// The entries of a block: declarations of types, `path = value;` and `path := type;`.
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

    /// Words with dots between, e.g. `stream.event.header`.
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

    /// A number with its sign.
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
                ("major", Entry::Value(Value::Number(1)))
                | ("minor", Entry::Value(Value::Number(8))) => {}
                ("major" | "minor", _) => {
                    return Err(parser.error(MetadataProblem::Unsupported("version of CTF")));
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn environment(&mut self, document: &mut Document) -> Parsed<()> {
        self.entries(|_, path, entry| {
            let value = match entry {
                Entry::Value(Value::Number(number)) => EnvironmentValue::Number(number as i64),
                Entry::Value(Value::Text(text)) => EnvironmentValue::Text(text),
                _ => return Ok(()),
            };
            document.environment.push((path.to_owned(), value));
            Ok(())
        })
    }

    fn clock(&mut self, document: &mut Document) -> Parsed<()> {
        let mut clock = ClockNode {
            name: String::new(),
            frequency: 1_000_000_000,
            offset_seconds: 0,
            offset_cycles: 0,
        };
        self.entries(|parser, path, entry| {
            let out_of_range = || parser.error(MetadataProblem::Value("clock"));
            match (path, entry) {
                ("name", Entry::Value(Value::Text(name))) => clock.name = name,
                ("name", Entry::Value(Value::Path(name))) => clock.name = name.join("."),
                ("freq", Entry::Value(Value::Number(number))) => {
                    let frequency = u64::try_from(number).ok().filter(|&frequency| frequency > 0);
                    clock.frequency = frequency.ok_or_else(out_of_range)?;
                }
                ("offset_s", Entry::Value(Value::Number(number))) => {
                    clock.offset_seconds = i64::try_from(number).map_err(|_| out_of_range())?;
                }
                ("offset", Entry::Value(Value::Number(number))) => {
                    clock.offset_cycles = i64::try_from(number).map_err(|_| out_of_range())?;
                }
                _ => {}
            }
            Ok(())
        })?;
        document.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self, document: &mut Document) -> Parsed<()> {
        let mut stream = StreamNode::default();
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
        let (line, column) = self.place;
        let mut event = EventNode { line, column, ..EventNode::default() };
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

    /// Whether it is big endian; `None` for the trace's own order.
    pub(crate) fn byte_order(&self, order: &[String]) -> Parsed<Option<bool>> {
        match order {
            [order] if order == "le" => Ok(Some(false)),
            [order] if order == "be" || order == "network" => Ok(Some(true)),
            [order] if order == "native" => Ok(None),
            _ => Err(self.error(MetadataProblem::Value("byte_order"))),
        }
    }
}

/// What an entry of a block says.
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
