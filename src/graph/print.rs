//! Graph to text; the grammar is in `docs/ir.md`.

use std::fmt;

use super::{Graph, Node};
use crate::ops::Op;
use crate::types::ValueId;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, false)
    }
}

/// A graph that prints the line of the program behind each node as a comment, where it is known.
pub(crate) struct WithLines<'g>(&'g Graph);

impl fmt::Display for WithLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(f, true)
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
                print_node(f, self.0, self.1, false)
            }
        }

        Line(id, self.node(id)).to_string().trim_end().to_owned()
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, lines: bool) -> fmt::Result {
        f.write_str("graph (")?;
        for (position, &id) in self.params.iter().enumerate() {
            write!(f, "{}{id}: {}", if position == 0 { "" } else { ", " }, self.ty(id))?;
        }
        f.write_str(") {\n")?;
        for (id, node) in self.iter() {
            if !matches!(node.op, Op::Parameter(_)) {
                f.write_str("  ")?;
                print_node(f, id, node, lines)?;
            }
        }
        f.write_str("  return")?;
        for (position, id) in self.outputs.iter().enumerate() {
            write!(f, "{} {id}", if position == 0 { "" } else { "," })?;
        }
        f.write_str("\n}")
    }
}

fn print_node(f: &mut fmt::Formatter<'_>, id: ValueId, node: &Node, lines: bool) -> fmt::Result {
    write!(f, "{id} = {}", node.op.name())?;
    for (position, arg) in node.args.iter().enumerate() {
        write!(f, "{} {arg}", if position == 0 { "" } else { "," })?;
    }
    let attributes = node.op.attributes();
    if !attributes.is_empty() {
        write!(f, " {{{attributes}}}")?;
    }
    write!(f, " : {}", node.ty)?;
    if let Some(at) = node.at.filter(|_| lines) {
        // A path may hold anything; a comment ends with its line.
        write!(f, "  ; {}", at.to_string().replace(char::is_control, " "))?;
    }
    f.write_str("\n")
}
