//! Descriptions of arguments and results, from the leaves that were written.

use super::writer::{Field, Leaf, LeafKind, Writer, path_text};
use crate::signature::{ArgumentText, Description, LeafText, LeafValue, type_names};

impl Description {
    /// Describes arguments of the types `Args`, a tuple, that were written with paths.
    pub(crate) fn of<Args>(leaves: &Writer<'_>) -> Description {
        let noted = leaves.paths.as_ref().map_or(&[][..], |paths| &paths.leaves);
        let mut rest = 0;
        let argument = |(n, type_name): (usize, String)| {
            let start = rest;
            rest += noted[start..].iter().take_while(|leaf| leaf.path.first() == Some(&Field::Index(n))).count();
            ArgumentText { type_name, leaves: start..rest }
        };
        let arguments = type_names(std::any::type_name::<Args>()).into_iter().enumerate().map(argument).collect();
        Description { arguments, ..Description::with_paths(leaves, argument_path) }
    }

    /// Describes a result; empty if it was written without paths.
    pub(crate) fn of_result(leaves: &Writer<'_>) -> Description {
        Description::with_paths(leaves, |path| path_text("result", path))
    }

    fn with_paths(leaves: &Writer<'_>, path: impl Fn(&[Field]) -> String) -> Description {
        let noted = leaves.paths.as_ref().map_or(&[][..], |paths| &paths.leaves);
        let mut tensors = leaves.tensors.iter();
        let value = |leaf: &Leaf| match leaf.kind {
            LeafKind::Tensor => match tensors.next().and_then(|tensor| Some((tensor.ty()?, tensor.device()))) {
                Some((ty, device)) => LeafValue::Tensor { dtype: ty.dtype, shape: ty.shape.clone(), device },
                None => LeafValue::Structure { text: "a poisoned tensor".to_owned() },
            },
            LeafKind::Static { type_name } => LeafValue::Static { text: leaf.text.clone(), type_name },
            LeafKind::Structure => LeafValue::Structure { text: leaf.text.clone() },
        };
        let values: Vec<LeafValue> = noted.iter().map(value).collect();
        let leaf = |(leaf, value): (&Leaf, LeafValue)| LeafText { path: path(&leaf.path), value };
        Description { leaves: noted.iter().zip(values).map(leaf).collect(), ..Description::default() }
    }
}

/// A path whose first step says which argument it is.
fn argument_path(path: &[Field]) -> String {
    match path {
        [Field::Index(index), rest @ ..] => path_text(&format!("argument {index}"), rest),
        _ => path_text("", path),
    }
}
