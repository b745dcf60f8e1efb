use retape::Tree;

#[derive(Tree)]
union Number {
    whole: u32,
    bytes: [u8; 4],
}

fn main() {}
