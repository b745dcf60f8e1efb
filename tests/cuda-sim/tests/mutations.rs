//! Texts with words left out, doubled and exchanged: parsed or refused, run or at fault, but never a panic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_cuda_sim::{Machine, Module, Order};

const KERNELS: [&str; 4] = [
    include_str!("../ptx/ew.ptx"),
    include_str!("../ptx/reduce.ptx"),
    include_str!("../ptx/mma16.ptx"),
    include_str!("../ptx/cpasync.ptx"),
];

/// Words that no kernel has, or not where they will stand.
const STRANGE: [&str; 16] = [
    "18446744073709551615",
    "-1",
    "{",
    "}",
    "[",
    "]",
    ";",
    "%tid.x",
    "0f7F800000",
    ".align",
    "_",
    "!",
    "|",
    "@",
    ".b8",
    "1e400",
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Words and the signs between them.
fn words(text: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for c in text.lines().flat_map(|line| line.split("//").next().unwrap_or("").chars().chain(['\n'])) {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '%' | '.');
        match found.last_mut() {
            Some(last) if is_word(c) && last.ends_with(is_word) => last.push(c),
            _ => found.push(c.to_string()),
        }
    }
    found
}

fn mutate(words: &mut Vec<String>, random: &mut Random) {
    let at = random.below(words.len());
    match random.below(5) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[at].clone()),
        2 => {
            let other = random.below(words.len());
            words.swap(at, other);
        }
        3 => words[at] = words[random.below(words.len())].clone(),
        _ => words[at] = STRANGE[random.below(STRANGE.len())].to_owned(),
    }
}

#[test]
fn no_text_makes_the_interpreter_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut parsed, mut ran) = (0, 0);
    for n in 0..4000 {
        let mut text = words(KERNELS[n % KERNELS.len()]);
        for _ in 0..1 + random.below(3) {
            mutate(&mut text, &mut random);
        }
        let Ok(module) = Module::parse(&text.concat()) else { continue };
        parsed += 1;
        let Some(name) = module.kernels().next().map(str::to_owned) else { continue };
        let mut machine = Machine::new();
        machine.set_branch_limit(10_000);
        let a = machine.put(&[1.0_f32; 4096]);
        let b = machine.alloc(4096 * 4);
        let args: &[u64] = match name.as_str() {
            "ew" => &[a, b, 0, 0, 512],
            _ => &[a, b, 4],
        };
        let block = [256, 256, 32, 128][n % KERNELS.len()];
        ran += u32::from(machine.launch(&module, &name, 2, block, 0, args, Order::FORWARD).is_ok());
    }
    // Most changes are seen at once, and some do no harm.
    assert!(parsed > 400 && ran > 50, "{parsed} of 4000 texts parsed, {ran} ran");
}
