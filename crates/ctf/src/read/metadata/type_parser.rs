//! Parsing of TSDL's types (CTF 1.8, §4 and §7.3.2).

use std::sync::Arc;

use super::lexer::Token;
use super::node::{
    EnvironmentValue, IntegerNode, NamedNode, Node, NodeKind, Reference, ReferenceStart,
    SourcePosition,
};
use super::parser::{Parsed, Parser, Value};
use crate::model::meaning::Meaning;
use crate::model::types::{Base, Mapping};
use crate::read::error::{MetadataError, MetadataProblem};

/// Words of C that form type names, often several in a row.
const TYPE_WORDS: [&str; 12] = [
    "void",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "signed",
    "unsigned",
    "_Bool",
    "_Complex",
    "_Imaginary",
];
/// Greatest alignment, in bits.
const ALIGNMENT_MAX: i128 = 4096;
/// Maximum number of labels of an enumeration.
const LABELS_MAX: usize = 65_536;

impl Parser<'_> {
    /// Returns true if a type declaration comes next, not an entry of a block. `variant` and
    /// `struct` begin a declaration too, but never a path.
    pub(crate) fn at_declaration(&self) -> bool {
        ["typealias", "typedef", "struct", "variant", "enum"].iter().any(|word| self.at_word(word))
    }

    /// Parses `typealias T := name;`, `typedef T name;` or `struct name { … };`.
    pub(crate) fn declaration(&mut self) -> Parsed<()> {
        if self.at_word("typealias") {
            self.advance()?;
            let mut node = self.type_specifier()?;
            if self.at_symbol("[") {
                node = self.dimensions(node)?;
            }
            self.expect(":=")?;
            if !matches!(self.token, Token::Word(_)) {
                return Err(self.unexpected("a name"));
            }
            let mut name = self.type_name()?;
            // The name consists of several words that are not C's.
            while matches!(self.token, Token::Word(_)) {
                name = format!("{name} {}", self.type_name()?);
            }
            let node = self.with_meaning(&name, node)?;
            self.define(name, node);
        } else if self.at_word("typedef") {
            self.advance()?;
            let node = self.type_specifier()?;
            for named in self.declarators(&node)? {
                self.define(named.name, named.node);
            }
        } else if self.at_declaration() {
            self.type_specifier()?;
        } else {
            return Err(self.unexpected("a declaration"));
        }
        self.expect(";")
    }

    /// Adds a meaning to an integer type whose name encodes one; returns other types unchanged.
    fn with_meaning(&self, name: &str, node: Arc<Node>) -> Parsed<Arc<Node>> {
        let NodeKind::Integer(integer) = &node.kind else { return Ok(node) };
        let labels = |name: &str| {
            let found = self.scopes.iter().rev().find_map(|scope| scope.get(name))?;
            match &found.kind {
                NodeKind::Enumeration { labels, .. } => Some(Arc::clone(labels)),
                _ => None,
            }
        };
        let Some(meaning) = Meaning::of(name, &labels) else { return Ok(node) };
        let integer = IntegerNode { meaning: Some(meaning), ..integer.clone() };
        Node::new_shared(node.place, NodeKind::Integer(integer))
    }

    fn define(&mut self, name: String, node: Arc<Node>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, node);
        }
    }

    fn lookup(&self, place: SourcePosition, name: &str) -> Parsed<Arc<Node>> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        let unknown = || MetadataError::at(place, MetadataProblem::UnknownType(name.to_owned()));
        found.cloned().ok_or_else(unknown)
    }

    /// Parses a type without its declarator.
    pub(crate) fn type_specifier(&mut self) -> Parsed<Arc<Node>> {
        while self.at_word("const") {
            self.advance()?;
        }
        let place = self.place;
        let Token::Word(word) = &self.token else { return Err(self.unexpected("a type")) };
        match word.as_str() {
            "integer" => {
                let integer = self.integer()?;
                Node::new_shared(place, NodeKind::Integer(integer))
            }
            "floating_point" => self.floating_point(),
            "string" => self.string(),
            "struct" => self.structure(),
            "variant" => self.variant(),
            "enum" => self.enumeration(),
            _ => self.named_type(),
        }
    }

    /// Looks up a type by its name: one word, or several of C's, with `*` after them for a pointer.
    fn named_type(&mut self) -> Parsed<Arc<Node>> {
        let place = self.place;
        let name = self.type_name()?;
        let node = self.lookup(place, &name)?;
        match &node.kind {
            // Pointers are shown as addresses.
            NodeKind::Integer(integer) if name.ends_with('*') => {
                let integer = IntegerNode { base: Base::Hexadecimal, ..integer.clone() };
                Node::new_shared(place, NodeKind::Integer(integer))
            }
            _ => Ok(node),
        }
    }

    /// Parses a type name. Drops `const`, which does not affect the bytes.
    fn type_name(&mut self) -> Parsed<String> {
        let mut name = String::new();
        while let Token::Word(word) = &self.token {
            if word != "const" {
                let is_c = TYPE_WORDS.contains(&word.as_str());
                if !name.is_empty() && !is_c {
                    break;
                }
                if !name.is_empty() {
                    name.push(' ');
                }
                name.push_str(word);
                if !is_c {
                    self.advance()?;
                    break;
                }
            }
            self.advance()?;
        }
        while self.at_word("const") || self.at_symbol("*") {
            if self.at_symbol("*") {
                name.push_str(" *");
            }
            self.advance()?;
        }
        Ok(name)
    }

    /// Parses `{ name = value; … }` after a type's keyword.
    fn attributes(
        &mut self,
        mut attribute: impl FnMut(&mut Self, &str, &Value) -> Parsed<()>,
    ) -> Parsed<()> {
        self.expect("{")?;
        while !self.take("}")? {
            let name = self.word()?;
            self.expect("=")?;
            let value = self.value()?;
            attribute(self, &name, &value)?;
            self.expect(";")?;
        }
        Ok(())
    }

    fn integer(&mut self) -> Parsed<IntegerNode> {
        let (mut bits, mut alignment) = (0, None);
        let mut integer = IntegerNode::new(0);
        self.advance()?;
        self.attributes(|parser, name, value| {
            match (name, value) {
                ("size", Value::Number(number)) => bits = *number,
                ("align", value) => alignment = Some(parser.alignment(value)?),
                ("signed", value) => integer.signed = parser.boolean(value, "signed")?,
                ("byte_order", Value::Path(path)) => {
                    integer.big_endian = parser.byte_order(path)?
                }
                ("base", value) => integer.base = parser.base(value)?,
                ("encoding", value) => integer.character = parser.encoding(value)?,
                ("map", Value::Path(path)) => integer.clock = Some(parser.clock_name(path)?),
                _ => {}
            }
            Ok(())
        })?;
        if !(1..=64).contains(&bits) {
            return Err(self.error(MetadataProblem::Value("integer size")));
        }
        integer.bits = bits as u32;
        integer.alignment = alignment.unwrap_or(if bits % 8 == 0 { 8 } else { 1 });
        Ok(integer)
    }

    fn alignment(&self, value: &Value) -> Parsed<u64> {
        match value {
            Value::Number(number @ 1..=ALIGNMENT_MAX) if number.count_ones() == 1 => {
                Ok(*number as u64)
            }
            _ => Err(self.error(MetadataProblem::Value("alignment"))),
        }
    }

    pub(crate) fn boolean(&self, value: &Value, what: &'static str) -> Parsed<bool> {
        match value {
            Value::Number(number) => Ok(*number != 0),
            Value::Path(path) => match path.first().map(String::as_str) {
                Some("true" | "TRUE") => Ok(true),
                Some("false" | "FALSE") => Ok(false),
                _ => Err(self.error(MetadataProblem::Value(what))),
            },
            Value::Text(_) => Err(self.error(MetadataProblem::Value(what))),
        }
    }

    fn base(&self, value: &Value) -> Parsed<Base> {
        let word = match value {
            Value::Number(2) => "b",
            Value::Number(8) => "o",
            Value::Number(10) => "d",
            Value::Number(16) => "x",
            Value::Number(_) => "",
            Value::Text(text) => text,
            Value::Path(path) => path.first().map_or("", String::as_str),
        };
        match word {
            "decimal" | "dec" | "d" | "i" | "u" => Ok(Base::Decimal),
            "hexadecimal" | "hex" | "x" | "X" | "p" => Ok(Base::Hexadecimal),
            "octal" | "oct" | "o" => Ok(Base::Octal),
            "binary" | "b" => Ok(Base::Binary),
            _ => Err(self.error(MetadataProblem::Value("base"))),
        }
    }

    /// Returns true if the encoding makes an array of bytes text. ASCII counts as UTF-8.
    fn encoding(&self, value: &Value) -> Parsed<bool> {
        let word = match value {
            Value::Text(text) => text,
            Value::Path(path) => path.first().map_or("", String::as_str),
            Value::Number(_) => "",
        };
        match word {
            "UTF8" | "utf8" | "UTF-8" | "utf-8" | "ASCII" | "ascii" => Ok(true),
            "none" => Ok(false),
            _ => Err(self.error(MetadataProblem::Value("encoding"))),
        }
    }

    /// Returns the clock of the path `clock.NAME.value`.
    fn clock_name(&self, path: &[String]) -> Parsed<Arc<str>> {
        match path {
            [clock, name, value] if clock == "clock" && value == "value" => {
                Ok(Arc::from(name.as_str()))
            }
            _ => Err(self.error(MetadataProblem::Value("map"))),
        }
    }

    fn floating_point(&mut self) -> Parsed<Arc<Node>> {
        let place = self.place;
        let (mut exponent, mut mantissa, mut alignment) = (0, 0, 8);
        let mut big_endian = None;
        self.advance()?;
        self.attributes(|parser, name, value| {
            match (name, value) {
                ("exp_dig", Value::Number(number)) => exponent = *number,
                ("mant_dig", Value::Number(number)) => mantissa = *number,
                ("align", value) => alignment = parser.alignment(value)?,
                ("byte_order", Value::Path(path)) => big_endian = parser.byte_order(path)?,
                _ => {}
            }
            Ok(())
        })?;
        let bits = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => return Err(self.error(MetadataProblem::Unsupported("floating-point format"))),
        };
        Node::new_shared(place, NodeKind::Float { bits, alignment, big_endian, reversed: false })
    }

    fn string(&mut self) -> Parsed<Arc<Node>> {
        let place = self.place;
        self.advance()?;
        if self.at_symbol("{") {
            self.attributes(|parser, name, value| match name {
                "encoding" => parser.encoding(value).map(drop),
                _ => Ok(()),
            })?;
        }
        Node::new_shared(place, NodeKind::Text)
    }

    fn structure(&mut self) -> Parsed<Arc<Node>> {
        let place = self.place;
        self.advance()?;
        let name = self.optional_name("struct")?;
        if !self.at_symbol("{") {
            let name = name.ok_or_else(|| self.unexpected("'{'"))?;
            return self.lookup(place, &name);
        }
        let members = self.members()?;
        let mut alignment = 1;
        if self.at_word("align") {
            self.advance()?;
            self.expect("(")?;
            let value = self.value()?;
            alignment = self.alignment(&value)?;
            self.expect(")")?;
        }
        let node = Node::new_shared(place, NodeKind::Struct { members, alignment })?;
        if let Some(name) = name {
            self.define(name, Arc::clone(&node));
        }
        Ok(node)
    }

    /// Parses the optional name after a keyword; returns it with the keyword before it, as a key of
    /// scopes.
    fn optional_name(&mut self, keyword: &str) -> Parsed<Option<String>> {
        if matches!(self.token, Token::Word(_)) && !self.at_word("align") {
            return Ok(Some(format!("{keyword} {}", self.word()?)));
        }
        Ok(None)
    }

    fn members(&mut self) -> Parsed<Vec<NamedNode>> {
        self.expect("{")?;
        self.nested(|parser| {
            let mut members: Vec<NamedNode> = Vec::new();
            while !parser.take("}")? {
                if parser.at_word("typealias") || parser.at_word("typedef") {
                    parser.declaration()?;
                    continue;
                }
                let node = parser.type_specifier()?;
                if !parser.at_symbol(";") {
                    members.extend(parser.declarators(&node)?);
                }
                parser.expect(";")?;
            }
            Ok(members)
        })
    }

    /// Parses `name`, `name[3]` or `name[length]`, or several of them separated by commas.
    fn declarators(&mut self, node: &Arc<Node>) -> Parsed<Vec<NamedNode>> {
        let mut named = Vec::new();
        loop {
            let name = self.word()?;
            let node = self.dimensions(Arc::clone(node))?;
            named.push(NamedNode { name, node, ranges: None });
            if !self.take(",")? {
                return Ok(named);
            }
        }
    }

    /// Parses the brackets after a name; like in C, the first is the outermost.
    fn dimensions(&mut self, element: Arc<Node>) -> Parsed<Arc<Node>> {
        let place = self.place;
        if !self.take("[")? {
            return Ok(element);
        }
        let length = if matches!(self.token, Token::Word(_)) {
            self.named_length()?
        } else {
            let number = self.number()?;
            Ok(u64::try_from(number)
                .map_err(|_| self.error(MetadataProblem::Value("array length")))?)
        };
        self.expect("]")?;
        let element = self.nested(|parser| parser.dimensions(element))?;
        Node::new_shared(
            place,
            match length {
                Ok(length) => NodeKind::Array { element, length, alignment: 1 },
                Err(length) => NodeKind::Sequence { element, length, alignment: 1 },
            },
        )
    }

    /// Parses the name of a length: an environment entry, whose number it returns, or a field.
    fn named_length(&mut self) -> Parsed<Result<u64, Reference>> {
        let reference = self.reference()?;
        let [env, names @ ..] = &reference.path[..] else { return Ok(Err(reference)) };
        if env != "env" || names.is_empty() {
            return Ok(Err(reference));
        }
        let name = names.join(".");
        let entry = self.environment.iter().find(|(found, _)| *found == name);
        let Some((_, EnvironmentValue::Number(number))) = entry else {
            return Err(MetadataError::at(reference.place, MetadataProblem::UnknownField(name)));
        };
        let problem = MetadataProblem::Value("array length");
        let length = u64::try_from(*number);
        length.map(Ok).map_err(|_| MetadataError::at(reference.place, problem))
    }

    fn reference(&mut self) -> Parsed<Reference> {
        let place = self.place;
        Ok(Reference { path: self.path()?, start: ReferenceStart::Anywhere, place })
    }

    fn variant(&mut self) -> Parsed<Arc<Node>> {
        let place = self.place;
        self.advance()?;
        let name = self.optional_name("variant")?;
        let tag = if self.take("<")? {
            let tag = self.reference()?;
            self.expect(">")?;
            Some(tag)
        } else {
            None
        };
        let options: Arc<[NamedNode]> = if self.at_symbol("{") {
            let options = Arc::from(self.members()?);
            if let Some(name) = name {
                let untagged = NodeKind::Variant {
                    tag: tag.clone(),
                    options: Arc::clone(&options),
                    optional: false,
                };
                let node = Node::new_shared(place, untagged)?;
                self.define(name, node);
            }
            options
        } else {
            let name = name.ok_or_else(|| self.unexpected("'{'"))?;
            match &self.lookup(place, &name)?.kind {
                NodeKind::Variant { options, .. } => Arc::clone(options),
                _ => return Err(self.error(MetadataProblem::UnknownType(name))),
            }
        };
        Node::new_shared(place, NodeKind::Variant { tag, options, optional: false })
    }

    fn enumeration(&mut self) -> Parsed<Arc<Node>> {
        let place = self.place;
        self.advance()?;
        let name = self.optional_name("enum")?;
        let base = if self.take(":")? {
            Some(self.type_specifier()?)
        } else if self.at_symbol("{") {
            Some(self.lookup(place, "int")?)
        } else {
            None
        };
        let Some(base) = base else {
            let name = name.ok_or_else(|| self.unexpected("'{'"))?;
            return self.lookup(place, &name);
        };
        let NodeKind::Integer(integer) = &base.kind else {
            return Err(self.error(MetadataProblem::Value("type of enumeration")));
        };
        let integer = integer.clone();
        let labels = Arc::from(self.labels()?);
        let node =
            Node::new_shared(place, NodeKind::Enumeration { integer, labels, flags: false })?;
        if let Some(name) = name {
            self.define(name, Arc::clone(&node));
        }
        Ok(node)
    }

    fn labels(&mut self) -> Parsed<Vec<Mapping>> {
        self.expect("{")?;
        let mut mappings: Vec<Mapping> = Vec::new();
        let mut places = std::collections::HashMap::new();
        let mut next: i128 = 0;
        let mut count = 0;
        while !self.take("}")? {
            let label = match &self.token {
                Token::Word(text) | Token::Text(text) => text.clone(),
                _ => return Err(self.unexpected("a label")),
            };
            self.advance()?;
            let (mut first, mut last) = (next, next);
            if self.take("=")? {
                first = self.number()?;
                last = if self.take("...")? { self.number()? } else { first };
            }
            next = last + 1;
            let range = (self.label_value(first)?, self.label_value(last)?);
            // A label that is declared twice has both ranges, at its first place.
            let place = *places.entry(label.clone()).or_insert(mappings.len());
            match mappings.get_mut(place) {
                Some(mapping) => mapping.ranges.push(range),
                None => mappings.push(Mapping { label, ranges: vec![range] }),
            }
            count += 1;
            if count > LABELS_MAX {
                return Err(self.error(MetadataProblem::TooComplex));
            }
            if !self.take(",")? && !self.at_symbol("}") {
                return Err(self.unexpected("',' or '}'"));
            }
        }
        Ok(mappings)
    }

    /// Returns a label's value as two's complement.
    fn label_value(&self, value: i128) -> Parsed<u64> {
        if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value) {
            Ok(value as u64)
        } else {
            Err(self.error(MetadataProblem::Value("label's value")))
        }
    }
}
