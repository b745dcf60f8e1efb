//! `#[derive(Tree)]`: flattens and rebuilds structured arguments and results.
