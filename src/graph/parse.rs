//! Text to graph; reads what `Display` prints, and nothing that does not verify.

use std::collections::HashMap;
use std::fmt;

use super::{Args, Graph, Node};
use crate::ops::{Op, Parameter};
use crate::types::{TensorType, ValueId, parse_type, split_outside_brackets};

/// The place and the kind of a mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

impl std::str::FromStr for Graph {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Graph, ParseError> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, strip_comment(line)));
        let mut parser = Parser { lines: lines.filter(|(_, line)| !line.is_empty()).collect(), next: 0 };
        let (line, header) = parser.take()?;
        let graph = parser.graph(line, header)?;
        match parser.lines.get(parser.next) {
            Some((line, _)) => fail(*line, "text after the graph"),
            None => graph.verify().map_or_else(|e| fail(line, e.to_string()), |()| Ok(graph)),
        }
    }
}

fn strip_comment(line: &str) -> &str {
    line.split(';').next().unwrap_or_default().trim()
}

fn fail<T>(line: usize, message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { line, message: message.into() })
}

struct Parser<'t> {
    lines: Vec<(usize, &'t str)>,
    next: usize,
}

impl<'t> Parser<'t> {
    fn take(&mut self) -> Result<(usize, &'t str), ParseError> {
        let end = self.lines.last().map_or(1, |(line, _)| *line);
        let line = self.lines.get(self.next).copied();
        self.next += 1;
        line.ok_or(ParseError { line: end, message: "the text ends in the middle of a graph".into() })
    }

    /// Reads a graph whose first line is `header`; its last line is consumed.
    fn graph(&mut self, line: usize, header: &'t str) -> Result<Graph, ParseError> {
        let params = header.strip_prefix("graph (").and_then(|rest| rest.strip_suffix(") {"));
        let Some(params) = params else { return fail(line, "expected `graph (..) {`") };
        let mut scope = Scope::default();
        for (index, param) in split_outside_brackets(params).enumerate() {
            let Some((name, ty)) = param.split_once(':') else { return fail(line, "expected `%name: type`") };
            let ty = parse_type(ty.trim()).ok_or(()).or_else(|()| fail(line, format!("no type: {ty}")))?;
            let op = Op::Parameter(Parameter { index, ty });
            scope.define(line, name.trim(), op, Args::new())?;
        }
        loop {
            let (line, text) = self.take()?;
            if let Some(outputs) = text.strip_prefix("return") {
                let outputs = split_outside_brackets(outputs).map(|name| scope.find(line, name.trim()));
                let outputs = outputs.collect::<Result<_, _>>()?;
                let (line, close) = self.take()?;
                if close != "}" {
                    return fail(line, "expected `}`");
                }
                scope.graph.set_outputs(outputs);
                return Ok(scope.graph);
            }
            self.node(&mut scope, line, text)?;
        }
    }

    /// Reads `%3 = add %1, %2 {..} : f32[3]`.
    fn node(&mut self, scope: &mut Scope, line: usize, text: &'t str) -> Result<(), ParseError> {
        let Some((name, rest)) = text.split_once('=') else { return fail(line, "expected `%name = op ..`") };
        let rest = rest.trim();
        let (mnemonic, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (args, rest) = rest.split_at(rest.find(['{', ':']).unwrap_or(rest.len()));
        let args: Args =
            split_outside_brackets(args).map(|arg| scope.find(line, arg.trim())).collect::<Result<_, _>>()?;
        let (attributes, rest) = match rest.trim().strip_prefix('{') {
            Some(rest) => match rest.split_once('}') {
                Some((attributes, rest)) => (attributes, rest.trim()),
                None => return fail(line, "the attributes are not closed"),
            },
            None => ("", rest.trim()),
        };
        let Some(ty) = rest.strip_prefix(':') else { return fail(line, "expected `: type`") };
        if mnemonic == "call" {
            return fail(line, "a call of compiled code has no text to read back");
        }
        let op = Op::parse(mnemonic, attributes).or_else(|message| fail(line, message))?;
        let id = scope.define(line, name.trim(), op, args)?;
        match parse_type(ty.trim()) {
            Some(ty) if ty == *scope.graph.ty(id) => Ok(()),
            Some(_) => fail(line, format!("the op makes {}", scope.graph.ty(id))),
            None => fail(line, format!("no type: {ty}")),
        }
    }
}

/// The graph so far and the names of its values.
#[derive(Default)]
struct Scope {
    graph: Graph,
    names: HashMap<String, ValueId>,
}

impl Scope {
    fn find(&self, line: usize, name: &str) -> Result<ValueId, ParseError> {
        self.names.get(name).copied().ok_or_else(|| ParseError { line, message: format!("{name} is not defined") })
    }

    fn define(&mut self, line: usize, name: &str, op: Op, args: Args) -> Result<ValueId, ParseError> {
        let types: Vec<&TensorType> = args.iter().map(|&arg| self.graph.ty(arg)).collect();
        let ty = op.infer(&types).or_else(|e| fail(line, format!("{}: {e}", op.name())))?;
        if ty.checked_bytes().is_none() {
            return fail(line, format!("{ty} is too large to address"));
        }
        let id = self.graph.push(Node { op, args, ty, at: None, origin: None });
        match self.names.insert(name.to_owned(), id) {
            Some(_) => fail(line, format!("{name} is defined twice")),
            None => Ok(id),
        }
    }
}
