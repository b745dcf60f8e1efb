//! A table of the tensors of a tree.

use std::fmt;

use retape::{Tree, tree};

use super::format::type_text;

/// The tensors of a tree, with their sizes; as text a table.
///
/// ```
/// use retape::nn::Dense;
/// use retape_train::state::Summary;
///
/// let summary = Summary::of(&vec![Dense::new(1, 784, 32), Dense::new(2, 32, 10)]);
/// assert_eq!((summary.n_parameters(), summary.n_bytes()), (25_450, 101_800));
/// assert_eq!(summary.rows()[0].name, "0.weight");
/// println!("{summary}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    rows: Vec<SummaryRow>,
}

/// A tensor of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRow {
    /// Its name.
    pub name: String,
    /// Its dtype and shape, such as `f32[784, 32]`.
    pub type_text: String,
    /// The number of its elements.
    pub n_elements: usize,
    /// The number of their bytes.
    pub n_bytes: usize,
}

impl Summary {
    /// Looks at every tensor of a tree; one that is poisoned has no elements.
    pub fn of<T: Tree>(tree: &T) -> Summary {
        let row = |(name, tensor): (String, &retape::Tensor)| match tensor.error() {
            Some(_) => SummaryRow { name, type_text: "poisoned".to_owned(), n_elements: 0, n_bytes: 0 },
            None => SummaryRow {
                name,
                type_text: type_text(tensor.dtype(), tensor.shape()),
                n_elements: tensor.n_elements(),
                n_bytes: tensor.n_elements() * tensor.dtype().size(),
            },
        };
        Summary { rows: tree::named(tree).into_iter().map(row).collect() }
    }

    /// The tensors in the order of the tree.
    pub fn rows(&self) -> &[SummaryRow] {
        &self.rows
    }

    /// The number of elements of all of them.
    pub fn n_parameters(&self) -> usize {
        self.rows.iter().map(|row| row.n_elements).sum()
    }

    /// The number of their bytes.
    pub fn n_bytes(&self) -> usize {
        self.rows.iter().map(|row| row.n_bytes).sum()
    }
}

/// A number with a thin mark between thousands: `1,234,567`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |row: &SummaryRow| [row.name.clone(), row.type_text.clone(), grouped(row.n_elements)];
        let head = ["name", "type", "parameters"].map(str::to_owned);
        let total = ["total".to_owned(), format!("{} bytes", grouped(self.n_bytes())), grouped(self.n_parameters())];
        let lines: Vec<[String; 3]> = [head].into_iter().chain(self.rows.iter().map(cells)).chain([total]).collect();
        let widths = [0, 1, 2].map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
        for [name, ty, n] in &lines {
            writeln!(f, "{name:<0$}  {ty:<1$}  {n:>2$}", widths[0], widths[1], widths[2])?;
        }
        Ok(())
    }
}
