use retape::Tree;

#[derive(Tree)]
#[tree(static)]
struct OnAType(u8);

#[derive(Tree)]
struct Misspelt {
    #[tree(statics)]
    rate: f32,
}

fn main() {}
