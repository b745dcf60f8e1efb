//! In which lines the texts of workers differ.

use retape_kernels::library::Communicator;

/// Fails, on every worker, unless all workers of a class have the same text.
pub(crate) fn on_text(wire: &dyn Communicator, what: &str, class: &str, text: &str) -> Result<(), String> {
    let digest = [class, text].map(|text| *blake3::hash(text.as_bytes()).as_bytes()).concat();
    let digests = gathered(wire, &format!("agreement on {what}"), &digest, &vec![digest.len(); wire.size()])?;
    let class_of = |rank: usize| &digests[rank][..32];
    let of_class_of = |rank: usize| (0..wire.size()).filter(|&other| class_of(other) == class_of(rank)).collect();
    let mut classes = (0..wire.size()).map(of_class_of);
    let Some(ranks): Option<Vec<usize>> =
        classes.find(|ranks: &Vec<usize>| ranks.iter().any(|&rank| digests[rank] != digests[ranks[0]]))
    else {
        return Ok(());
    };
    let call = format!("agreement on {what}: lengths");
    let lens = gathered(wire, &call, &text.len().to_le_bytes(), &vec![size_of::<usize>(); wire.size()])?;
    let lens: Vec<usize> = lens.iter().filter_map(|len| Some(usize::from_le_bytes(len[..].try_into().ok()?))).collect();
    let texts = gathered(wire, &format!("agreement on {what}: texts"), text.as_bytes(), &lens)?;
    Err(differences(what, &ranks, &digests, &texts))
}

/// The bytes of all workers, whose lengths are known.
fn gathered(wire: &dyn Communicator, call: &str, mine: &[u8], lens: &[usize]) -> Result<Vec<Vec<u8>>, String> {
    let mut all: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
    all[wire.rank()] = mine.to_vec();
    let mut receives: Vec<&mut [u8]> = all.iter_mut().map(Vec::as_mut_slice).collect();
    wire.exchange(call, &vec![mine; wire.size()], &mut receives)?;
    Ok(all)
}

/// How much of a line is shown.
const WIDTH: usize = 200;

/// How many lines that differ are shown of each pair.
const LINES: usize = 3;

/// Among some workers, those that differ from the first one, and the first lines in which they do.
pub(crate) fn differences(what: &str, among: &[usize], digests: &[Vec<u8>], texts: &[Vec<u8>]) -> String {
    let mut kinds: Vec<(&Vec<u8>, Vec<usize>)> = vec![];
    for &rank in among {
        let digest = &digests[rank];
        match kinds.iter_mut().find(|(known, _)| *known == digest) {
            Some((_, ranks)) => ranks.push(rank),
            None => kinds.push((digest, vec![rank])),
        }
    }
    let names: Vec<String> = kinds.iter().map(|(_, ranks)| self::ranks(ranks)).collect();
    let mut report = format!("{what} differs between workers: {}", names.join(" | "));
    let Some((_, first)) = kinds.first() else { return report };
    for (_, other) in kinds.iter().skip(1).take(LINES) {
        let (a, b) = (first[0], other[0]);
        let (left, right) = (String::from_utf8_lossy(&texts[a]), String::from_utf8_lossy(&texts[b]));
        let pairs = lines(&left, &right);
        if pairs.is_empty() {
            report += &format!("\nranks {a} and {b} differ in their digests, and not in their texts");
        }
        for (line, left, right) in pairs {
            report += &format!("\nline {line} of rank {a}: {left}\nline {line} of rank {b}: {right}");
        }
    }
    report
}

/// The numbers and the contents of the first lines that differ.
fn lines<'t>(left: &'t str, right: &'t str) -> Vec<(usize, &'t str, &'t str)> {
    let line = |text: Option<&'t str>| text.map_or("(no such line)", |text| &text[..text.floor_char_boundary(WIDTH)]);
    let (mut left, mut right) = (left.lines(), right.lines());
    let mut found = vec![];
    for number in 1.. {
        let pair = (left.next(), right.next());
        if pair == (None, None) || found.len() == LINES {
            break;
        }
        if pair.0 != pair.1 {
            found.push((number, line(pair.0), line(pair.1)));
        }
    }
    found
}

/// The names of some workers.
pub(crate) fn ranks(ranks: &[usize]) -> String {
    let names: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match names.as_slice() {
        [] => "nobody".to_owned(),
        [one] => format!("rank {one}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}
