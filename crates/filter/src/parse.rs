//! Parses tokens to a tree: precedence climbing, with C's precedences.
//!
//! ```text
//! ||   &&   |   ^   &   == !=   < <= > >= in   << >>   + -   * / %   ! ~ - +   . [] ()
//! ```
//!
//! The tree has no types. Its height is bounded, so that recursion over it is safe; a `&&` or `||`
//! with any number of parts adds one level.

use crate::error::{Error, Topic, Warning};
use crate::span::Span;
use crate::text::Text;
use crate::token::{Number, Token, is_pattern, tokenize};

/// Maximum height of a tree, and maximum nesting of parentheses.
pub const HEIGHT_MAX: usize = 64;

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Binary {
    /// Returns the operator's symbol.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }

    /// Returns true if the operator is a comparison.
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal
                | Self::NotEqual
                | Self::Less
                | Self::LessEqual
                | Self::Greater
                | Self::GreaterEqual
        )
    }

    const fn is_bitwise(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor)
    }
}

/// Unary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Unary {
    Plus,
    Negate,
    Complement,
    Not,
}

impl Unary {
    /// Returns the operator's symbol.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Negate => "-",
            Self::Complement => "~",
            Self::Not => "!",
        }
    }
}

/// An item in the list of `in`.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A value.
    One(Tree),
    /// A range that includes both ends.
    Range(Tree, Tree),
}

/// A subexpression with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// Node of the subexpression.
    pub node: Node,
    /// Position in the text, including parentheses.
    pub span: Span,
    /// True if the subexpression is in parentheses.
    pub is_bracketed: bool,
    height: usize,
}

/// The operation or operand of a subexpression.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A number.
    Number(Number),
    /// A string.
    Text(Text),
    /// `true`, `false`.
    Truth(bool),
    /// A field, by its name.
    Name(String),
    /// A context, by its name without `$ctx.`.
    Context(String),
    /// An application's context, by its name without `$app.`.
    Application(String),
    /// A member of a structure.
    Member(Box<Tree>, String),
    /// An element of an array or a sequence.
    Index(Box<Tree>, Box<Tree>),
    /// A unary operator.
    Unary(Unary, Box<Tree>),
    /// A binary operator.
    Binary(Binary, Box<Tree>, Box<Tree>),
    /// Conjunction (`&&`) of the parts, from left to right.
    All(Vec<Tree>),
    /// Disjunction (`||`) of the parts, from left to right.
    Either(Vec<Tree>),
    /// True if the value is in the list.
    In(Box<Tree>, Vec<Item>),
    /// A function call: the name, the name's position, and the arguments.
    Call(String, Span, Vec<Tree>),
}

/// A parsed expression with its warnings.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// Root of the expression.
    pub tree: Tree,
    /// Warnings about surprising precedences.
    pub warnings: Vec<Warning>,
}

/// Parses an expression.
///
/// # Errors
///
/// Returns an error if the text is no expression, or is higher than [`HEIGHT_MAX`].
pub fn parse(text: &str) -> Result<Parsed, Error> {
    let tokens = tokenize(text)?;
    let end = Span { from: text.trim_end().len(), to: text.trim_end().len() };
    let mut parser = Parser { tokens: &tokens, at: 0, end, depth: 0, warnings: Vec::new() };
    if tokens.is_empty() {
        return Err(Error::new(Topic::Syntax, end, "there is no expression"));
    }
    let tree = parser.expression(0)?;
    if parser.at < tokens.len() {
        return Err(parser.unexpected("an operator"));
    }
    Ok(Parsed { tree, warnings: parser.warnings })
}

/// An infix operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Infix {
    Either,
    All,
    In,
    Binary(Binary),
}

/// Returns the infix operator of a token, and its precedence.
fn infix_operator(token: &Token) -> Option<(Infix, u8)> {
    use Infix::Binary as B;
    let symbol = match token {
        Token::Symbol(symbol) => symbol,
        Token::Name(name) if name == "in" => return Some((Infix::In, 7)),
        _ => return None,
    };
    Some(match *symbol {
        "||" => (Infix::Either, 1),
        "&&" => (Infix::All, 2),
        "|" => (B(Binary::Or), 3),
        "^" => (B(Binary::Xor), 4),
        "&" => (B(Binary::And), 5),
        "==" => (B(Binary::Equal), 6),
        "!=" => (B(Binary::NotEqual), 6),
        "<" => (B(Binary::Less), 7),
        "<=" => (B(Binary::LessEqual), 7),
        ">" => (B(Binary::Greater), 7),
        ">=" => (B(Binary::GreaterEqual), 7),
        "<<" => (B(Binary::ShiftLeft), 8),
        ">>" => (B(Binary::ShiftRight), 8),
        "+" => (B(Binary::Add), 9),
        "-" => (B(Binary::Subtract), 9),
        "*" => (B(Binary::Multiply), 10),
        "/" => (B(Binary::Divide), 10),
        "%" => (B(Binary::Remainder), 10),
        _ => return None,
    })
}

struct Parser<'tokens> {
    tokens: &'tokens [(Token, Span)],
    at: usize,
    /// Position of the end of the text.
    end: Span,
    /// Depth of the parser's recursion.
    depth: usize,
    warnings: Vec<Warning>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |(_, span)| *span)
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let is_here = self.is_symbol(symbol);
        self.at += usize::from(is_here);
        is_here
    }

    fn expect(&mut self, symbol: &str) -> Result<Span, Error> {
        let span = self.span();
        if self.accept(symbol) { Ok(span) } else { Err(self.unexpected(&format!("'{symbol}'"))) }
    }

    /// Returns the error that `expected` is missing at the current token.
    fn unexpected(&self, expected: &str) -> Error {
        let error = |message: String| Error::new(Topic::Syntax, self.span(), message);
        match self.peek() {
            None => error(format!("the expression ends where {expected} is expected")),
            Some(Token::Symbol("=")) => error("'=' assigns; '==' compares".into()),
            Some(Token::Symbol(symbol)) => error(format!("expected {expected}, found '{symbol}'")),
            Some(Token::Name(name)) => {
                let error = error(format!("expected {expected}, found '{name}'"));
                match name.as_str() {
                    "and" => error.with_hint("'and' is written &&"),
                    "or" => error.with_hint("'or' is written ||"),
                    "not" => error.with_hint("'not' is written !"),
                    _ => error,
                }
            }
            Some(_) => error(format!("expected {expected}, found a value")),
        }
    }

    fn too_high(span: Span) -> Error {
        let message = format!("this is nested more than {HEIGHT_MAX} deep");
        Error::new(Topic::Limit, span, message)
    }

    /// Creates a node above subtrees of at most height `below`.
    fn node_above(below: usize, node: Node, span: Span) -> Result<Tree, Error> {
        if below >= HEIGHT_MAX {
            return Err(Self::too_high(span));
        }
        Ok(Tree { node, span, is_bracketed: false, height: below + 1 })
    }

    /// Recurses one level, within the limit: two levels make a pair of parentheses.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == 2 * HEIGHT_MAX {
            return Err(Self::too_high(self.span()));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Parses operands and operators that bind more strongly than `least`.
    fn expression(&mut self, least: u8) -> Result<Tree, Error> {
        let mut left = self.deeper(Self::unary)?;
        while let Some((operator, strength)) = self.peek().and_then(infix_operator) {
            if strength <= least {
                break;
            }
            let symbol_span = self.span();
            self.at += 1;
            left = if operator == Infix::In {
                self.warn_of_not(&left, "in");
                let (items, end) = self.items()?;
                Self::build_membership(left, items, end)?
            } else {
                let right = self.deeper(|parser| parser.expression(strength))?;
                self.build_operation(operator, symbol_span, left, right)?
            };
        }
        Ok(left)
    }

    fn build_operation(
        &mut self,
        operator: Infix,
        symbol_span: Span,
        left: Tree,
        right: Tree,
    ) -> Result<Tree, Error> {
        let span = Span { from: left.span.from, to: right.span.to };
        let Infix::Binary(binary) = operator else {
            return Self::build_logical(operator, left, right, span);
        };
        self.warn_of_precedence(binary, symbol_span, &left, &right);
        let below = left.height.max(right.height);
        let node = Node::Binary(binary, Box::new(left), Box::new(right));
        Self::node_above(below, node, span)
    }

    /// Builds `&&` and `||`: an existing list gets longer, not higher.
    fn build_logical(operator: Infix, left: Tree, right: Tree, span: Span) -> Result<Tree, Error> {
        let mut parts = match (left.node, operator) {
            (Node::All(parts), Infix::All) if !left.is_bracketed => parts,
            (Node::Either(parts), Infix::Either) if !left.is_bracketed => parts,
            (node, _) => vec![Tree { node, ..left }],
        };
        // An existing list in `left` counts as one level less, since the list is extended.
        let below = left.height.saturating_sub(usize::from(parts.len() > 1)).max(right.height);
        parts.push(right);
        let node = if operator == Infix::All { Node::All(parts) } else { Node::Either(parts) };
        Self::node_above(below, node, span)
    }

    fn build_membership(value: Tree, items: Vec<Item>, end: usize) -> Result<Tree, Error> {
        let below = items.iter().map(|item| match item {
            Item::One(tree) => tree.height,
            Item::Range(low, high) => low.height.max(high.height),
        });
        let below = below.max().unwrap_or(0).max(value.height);
        let span = Span { from: value.span.from, to: end };
        Self::node_above(below, Node::In(Box::new(value), items), span)
    }

    /// Parses a list `(1, 2, 5..9)`, and returns where it ends.
    fn items(&mut self) -> Result<(Vec<Item>, usize), Error> {
        self.expect("(")?;
        let mut items = Vec::new();
        loop {
            let low = self.deeper(|parser| parser.expression(0))?;
            items.push(if self.accept("..") {
                Item::Range(low, self.deeper(|parser| parser.expression(0))?)
            } else {
                Item::One(low)
            });
            if !self.accept(",") {
                break;
            }
        }
        let end = self.expect(")")?.to;
        Ok((items, end))
    }

    fn unary(&mut self) -> Result<Tree, Error> {
        let from = self.span().from;
        let operator = match self.peek() {
            Some(Token::Symbol("!")) => Unary::Not,
            Some(Token::Symbol("~")) => Unary::Complement,
            Some(Token::Symbol("-")) => Unary::Negate,
            Some(Token::Symbol("+")) => Unary::Plus,
            _ => return self.postfix(),
        };
        self.at += 1;
        let operand = self.deeper(Self::unary)?;
        let span = Span { from, to: operand.span.to };
        Self::node_above(operand.height, Node::Unary(operator, Box::new(operand)), span)
    }

    fn postfix(&mut self) -> Result<Tree, Error> {
        let mut tree = self.primary()?;
        loop {
            let from = tree.span.from;
            let below = tree.height;
            let (node, below) = if self.accept(".") {
                let Some(Token::Name(name)) = self.peek().cloned() else {
                    return Err(self.unexpected("a member's name"));
                };
                self.at += 1;
                (Node::Member(Box::new(tree), name), below)
            } else if self.accept("[") {
                let index = self.deeper(|parser| parser.expression(0))?;
                self.expect("]")?;
                let below = below.max(index.height);
                (Node::Index(Box::new(tree), Box::new(index)), below)
            } else {
                return Ok(tree);
            };
            let span = Span { from, to: self.tokens[self.at - 1].1.to };
            tree = Self::node_above(below, node, span)?;
        }
    }

    fn primary(&mut self) -> Result<Tree, Error> {
        let span = self.span();
        let Some(token) = self.peek().cloned() else {
            return Err(self.unexpected("a value"));
        };
        let node = match token {
            Token::Symbol("(") => return self.brackets(),
            Token::Symbol(_) => return Err(self.unexpected("a value")),
            Token::Name(name) if name == "in" => return Err(self.unexpected("a value")),
            Token::Name(name) => {
                self.at += 1;
                if self.is_symbol("(") {
                    return self.call(name, span);
                }
                match name.as_str() {
                    "true" => Node::Truth(true),
                    "false" => Node::Truth(false),
                    _ => Node::Name(name),
                }
            }
            value => {
                self.at += 1;
                match value {
                    Token::Number(number) => Node::Number(number),
                    Token::Text(text) => Node::Text(text),
                    Token::Context(name) => Node::Context(name),
                    Token::Application(name) => Node::Application(name),
                    Token::Name(_) | Token::Symbol(_) => return Err(self.unexpected("a value")),
                }
            }
        };
        Self::node_above(0, node, span)
    }

    fn brackets(&mut self) -> Result<Tree, Error> {
        let from = self.expect("(")?.from;
        let inner = self.deeper(|parser| parser.expression(0))?;
        let to = self.expect(")")?.to;
        Ok(Tree { span: Span { from, to }, is_bracketed: true, ..inner })
    }

    fn call(&mut self, name: String, name_span: Span) -> Result<Tree, Error> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if !self.is_symbol(")") {
            loop {
                arguments.push(self.deeper(|parser| parser.expression(0))?);
                if !self.accept(",") {
                    break;
                }
            }
        }
        let to = self.expect(")")?.to;
        let below = arguments.iter().map(|tree| tree.height).max().unwrap_or(0);
        let span = Span { from: name_span.from, to };
        Self::node_above(below, Node::Call(name, name_span, arguments), span)
    }

    /// Warns of surprises: comparisons bind more strongly than `&`, `^`, `|` in C, and may be
    /// chained.
    fn warn_of_precedence(&mut self, binary: Binary, span: Span, left: &Tree, right: &Tree) {
        let comparison = |tree: &Tree| match &tree.node {
            _ if tree.is_bracketed => None,
            Node::Binary(inner, ..) if inner.is_comparison() => Some(inner.symbol()),
            Node::In(..) => Some("in"),
            _ => None,
        };
        let symbol = binary.symbol();
        if binary.is_bitwise() {
            for (side, is_left) in [(left, true), (right, false)] {
                let Some(inner) = comparison(side) else { continue };
                let shown = if is_left {
                    format!("(a {inner} b) {symbol} c")
                } else {
                    format!("a {symbol} (b {inner} c)")
                };
                let message = format!("'{inner}' binds more strongly than '{symbol}': {shown}");
                let warning = Error::new(Topic::Syntax, span, message);
                self.warnings.push(warning.with_hint("brackets say what is meant"));
            }
        }
        if !binary.is_comparison() {
            return;
        }
        self.warn_of_not(left, symbol);
        if !matches!(binary, Binary::Equal | Binary::NotEqual)
            && let Some(inner) = comparison(left)
        {
            let message = format!("this compares the answer of '{inner}', 0 or 1");
            let warning = Error::new(Topic::Syntax, span, message);
            self.warnings.push(warning.with_hint("two comparisons are joined with &&"));
        }
    }

    fn warn_of_not(&mut self, left: &Tree, symbol: &str) {
        if matches!(left.node, Node::Unary(Unary::Not, _)) && !left.is_bracketed {
            let message = format!("'!' binds more strongly than '{symbol}': (!a) {symbol} b");
            let warning = Error::new(Topic::Syntax, left.span, message);
            self.warnings.push(warning.with_hint("brackets say what is meant"));
        }
    }
}

/// Splits `PATTERN: EXPR` at the first colon before a space: the pattern of events and the
/// expression. Without such a colon or a pattern before it, all of the text is an expression.
/// Colons in strings do not split.
pub fn split_pattern(text: &str) -> (Option<&str>, &str) {
    let mut quoted = None;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (byte, quoted) {
            (b'\\', Some(_)) => {
                bytes.next();
            }
            (b'"' | b'\'', None) => quoted = Some(byte),
            (byte, Some(quote)) if byte == quote => quoted = None,
            (b':', None) if text[at + 1..].starts_with(char::is_whitespace) => {
                let pattern = text[..at].trim();
                if !is_pattern(pattern) {
                    break;
                }
                return (Some(pattern), text[at + 1..].trim_start());
            }
            _ => {}
        }
    }
    (None, text)
}
