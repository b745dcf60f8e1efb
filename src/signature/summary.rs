//! Signatures in short: one piece of text per argument.

use std::ops::Range;

use retape_runtime::Device;

use super::{Description, LeafText, LeafValue, Signature};

/// Static values longer than this are cut.
const MAX_STATIC: usize = 24;
/// More static values of one argument than this are only counted.
const MAX_STATICS: usize = 2;

/// An argument: its type, and which leaves are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentText {
    /// The Rust type without the paths of modules.
    pub(crate) type_name: String,
    pub(crate) leaves: Range<usize>,
}

impl Signature {
    /// The arguments in short: dtype and shape of a tensor, a static value, and of a structure its type with the number
    /// of its tensors. Signatures that differ may have one summary; [`id`](Signature::id) tells them apart.
    ///
    /// ```
    /// use retape::{Tensor, Tree, accelerate};
    ///
    /// #[derive(Clone, Tree)]
    /// struct Params {
    ///     w: Tensor,
    ///     b: Tensor,
    /// }
    ///
    /// let line = accelerate(|p: &Params, x: &Tensor, twice: &bool| if *twice { x * &p.w * 2.0 } else { x * &p.w + &p.b });
    /// let params = Params { w: Tensor::ones([8]), b: Tensor::zeros([8]) };
    /// let signature = line.signature(&params, Tensor::ones([32, 8]), true);
    /// assert_eq!(signature.summary(), "Params (2 tensors), f32[32, 8], true");
    /// assert_eq!(signature.to_string(), "f32[8], f32[8], f32[32, 8], true");
    /// ```
    pub fn summary(&self) -> String {
        self.description().summary()
    }

    /// The short name and the arguments in short.
    pub(crate) fn label(&self) -> String {
        format!("{} ({})", self.id(), self.summary())
    }
}

impl Description {
    /// The arguments and the modes in short.
    pub(crate) fn summary(&self) -> String {
        let mut text = self.summaries().join(", ");
        self.modes.iter().for_each(|mode| text.extend(["; ", mode]));
        text
    }

    /// Each argument in short.
    pub(crate) fn summaries(&self) -> Vec<String> {
        self.arguments.iter().map(|argument| self.summary_of(argument)).collect()
    }

    fn summary_of(&self, argument: &ArgumentText) -> String {
        let leaves = &self.leaves[argument.leaves.clone()];
        let tensors: Vec<&LeafText> = leaves.iter().filter(|leaf| leaf.value.is_tensor()).collect();
        let is_structure = |leaf: &LeafText| matches!(leaf.value, LeafValue::Structure { .. });
        // Keys of a map and elements of a static list have the path of the whole.
        let is_own = |leaf: &LeafText| !leaves.iter().any(|other| is_structure(other) && other.path == leaf.path);
        let is_static = |leaf: &LeafText| matches!(leaf.value, LeafValue::Static { .. }) && is_own(leaf);
        let statics: Vec<&LeafText> = leaves.iter().filter(|leaf| is_static(leaf)).collect();
        match (leaves, &tensors[..], &statics[..]) {
            ([leaf], [_], _) | ([leaf], _, [_]) => return cut(&leaf.value),
            ([], ..) => return argument.type_name.clone(),
            _ => {}
        }
        let mut parts = vec![];
        match &tensors[..] {
            [] => {}
            [tensor] => parts.push(tensor.value.to_string()),
            many => parts.push(format!("{} tensors{}", many.len(), place(many))),
        }
        match statics.len() {
            0 if tensors.is_empty() => parts.push(cut(&leaves[0].value)),
            0..=MAX_STATICS => parts.extend(statics.iter().map(|leaf| named(leaf))),
            n => parts.push(format!("{n} static values")),
        }
        format!("{} ({})", argument.type_name, parts.join(", "))
    }
}

/// The device of tensors that all lie on one, if that is not the usual one.
fn place(tensors: &[&LeafText]) -> String {
    let device = |leaf: &LeafText| match leaf.value {
        LeafValue::Tensor { device, .. } => device,
        LeafValue::Static { .. } | LeafValue::Structure { .. } => Device::Cpu,
    };
    let first = device(tensors[0]);
    let is_shared = first != Device::Cpu && tensors.iter().all(|leaf| device(leaf) == first);
    if is_shared { format!(" on {first}") } else { String::new() }
}

/// A static value with the last step of its path.
fn named(leaf: &LeafText) -> String {
    let path = leaf.path.as_str();
    match path.rfind(['.', '[']) {
        Some(at) if path[at..].starts_with('.') => format!("{} {}", &path[at + 1..], cut(&leaf.value)),
        _ => cut(&leaf.value),
    }
}

fn cut(value: &LeafValue) -> String {
    let text = value.to_string();
    match value {
        LeafValue::Static { .. } | LeafValue::Structure { .. } if text.chars().count() > MAX_STATIC => {
            text.chars().take(MAX_STATIC - 2).chain("..".chars()).collect()
        }
        LeafValue::Tensor { .. } | LeafValue::Static { .. } | LeafValue::Structure { .. } => text,
    }
}

/// The types of a tuple, each without the paths of modules: `Vec<Tensor>` for `alloc::vec::Vec<retape::tensor::Tensor>`.
pub(crate) fn type_names(tuple: &str) -> Vec<String> {
    let inner = tuple.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(tuple);
    let (mut names, mut depth) = (vec![String::new()], 0_usize);
    let mut word_start = 0;
    for c in inner.chars() {
        let name = names.last_mut().expect("the list begins with one name");
        match c {
            ',' if depth == 0 => {
                names.push(String::new());
                word_start = 0;
                continue;
            }
            // All before it is the path to what follows.
            ':' => {
                name.truncate(word_start);
                continue;
            }
            ' ' if name.is_empty() => continue,
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        name.push(c);
        if !(c.is_alphanumeric() || c == '_') {
            word_start = name.len();
        }
    }
    // A tuple of one type ends in a comma.
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use std::any::type_name;
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Tensor, Tree, accelerate};

    #[derive(Clone, Tree)]
    enum Mode {
        Fast,
        Slow(Tensor),
    }

    #[derive(Clone, Tree)]
    struct Layers {
        weights: BTreeMap<String, Tensor>,
        mode: String,
        #[tree(static)]
        sizes: Vec<usize>,
    }

    #[test]
    fn types_lose_their_modules_and_nothing_else() {
        assert_eq!(type_names(type_name::<(Tensor,)>()), ["Tensor"]);
        let names = type_names(type_name::<(Vec<Option<Tensor>>, (u8, String), [bool; 3], BTreeMap<String, Tensor>)>());
        assert_eq!(names, ["Vec<Option<Tensor>>", "(u8, String)", "[bool; 3]", "BTreeMap<String, Tensor>"]);
    }

    #[test]
    fn arguments_are_told_one_by_one() {
        let f = accelerate(|_: &Layers, x: &Tensor, _: &Option<Tensor>, _: &Mode, _: &Vec<Tensor>, _: &bool| x.clone());
        let weights = |n: usize| (0..n).map(|n| (format!("w{n}"), Tensor::ones([n]))).collect();
        let layers = |n, mode: &str| Layers { weights: weights(n), mode: mode.into(), sizes: vec![] };
        let x = || Tensor::ones([4, 3]);
        let short = |layers: Layers, mode: Mode, some: Option<Tensor>, list: Vec<Tensor>| {
            f.signature(layers, x(), some, mode, list, true).summary()
        };
        assert_eq!(
            short(layers(3, "plain"), Mode::Fast, None, vec![]),
            "Layers (3 tensors, mode \"plain\"), f32[4, 3], Option<Tensor> (None), Mode (Fast), Vec<Tensor> (length 0), true"
        );
        assert_eq!(
            short(layers(0, &"long ".repeat(9)), Mode::Slow(x()), Some(x()), vec![x(), x()]),
            "Layers (mode \"long long long long l..), f32[4, 3], Option<Tensor> (f32[4, 3]), Mode (f32[4, 3]), \
             Vec<Tensor> (2 tensors), true"
        );
    }

    #[test]
    fn modes_are_part_of_it() {
        let f = accelerate(|x: &Tensor| x + x);
        f.configure(|options| options.trap_nonfinite = true);
        f.call(Tensor::ones([2])).unwrap();
        assert_eq!(f.stats().entries[0].signature.summary(), "f32[2]; trap for non-finite values");
    }
}
