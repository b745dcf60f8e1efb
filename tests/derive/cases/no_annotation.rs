use retape::accelerate;

fn main() {
    let squared = accelerate(|x| x.square());
}
