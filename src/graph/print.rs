//! Graph to text; the grammar is in `docs/ir.md`.

use std::fmt;

use super::{Graph, Node};
use crate::ops::Op;
use crate::types::ValueId;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, 0, false)
    }
}

/// A graph that prints the line of the program behind each node as a comment, where it is known.
pub(crate) struct WithLines<'g>(&'g Graph);

impl fmt::Display for WithLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(f, 0, true)
    }
}

impl Graph {
    /// The graph as text that reads back, with lines of the program as comments.
    pub(crate) fn with_lines(&self) -> WithLines<'_> {
        WithLines(self)
    }

    /// The line of a node, such as `%3 = add %1, %2 : f32[4]`.
    pub(crate) fn node_text(&self, id: ValueId) -> String {
        /// A node that displays as its line.
        struct Line<'g>(ValueId, &'g Node);

        impl fmt::Display for Line<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print_node(f, self.0, self.1, 0, false)
            }
        }

        Line(id, self.node(id)).to_string().trim_end().to_owned()
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, depth: usize, lines: bool) -> fmt::Result {
        f.write_str("graph (")?;
        for (position, &id) in self.params.iter().enumerate() {
            write!(f, "{}{id}: {}", if position == 0 { "" } else { ", " }, self.ty(id))?;
        }
        f.write_str(") {\n")?;
        for (id, node) in self.iter() {
            if !matches!(node.op, Op::Parameter(_)) {
                print_node(f, id, node, depth + 1, lines)?;
            }
        }
        write!(f, "{:width$}return", "", width = 2 * (depth + 1))?;
        for (position, id) in self.outputs.iter().enumerate() {
            write!(f, "{} {id}", if position == 0 { "" } else { "," })?;
        }
        write!(f, "\n{:width$}}}", "", width = 2 * depth)
    }
}

fn print_node(f: &mut fmt::Formatter<'_>, id: ValueId, node: &Node, depth: usize, lines: bool) -> fmt::Result {
    write!(f, "{:width$}{id} = {}", "", node.op.name(), width = 2 * depth)?;
    for (position, arg) in node.args.iter().enumerate() {
        write!(f, "{} {arg}", if position == 0 { "" } else { "," })?;
    }
    let attributes = node.op.attributes();
    if !attributes.is_empty() {
        write!(f, " {{{attributes}}}")?;
    }
    write!(f, " : {}", node.ty)?;
    for region in &node.regions {
        f.write_str(" ")?;
        region.print(f, depth, lines)?;
    }
    if let Some(at) = node.at.filter(|_| lines) {
        // A path may hold anything; a comment ends with its line.
        write!(f, "  ; {}", at.to_string().replace(char::is_control, " "))?;
    }
    f.write_str("\n")
}
