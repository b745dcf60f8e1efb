//! The report: the data of the page, that nothing in it can become markup, and that a browser draws it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod browser;
mod drawn;
mod subjects;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use retape::{Tensor, Tree, accelerate, concat, value_and_grad};
use retape_report::Report;
use serde_json::Value;

/// Text that would run if it were not taken as text.
const HOSTILE: &str =
    "</script><script>document.documentElement.dataset.broken='yes'</script><img src=x onerror=alert(1)>";

#[derive(Clone, Tree)]
struct Layers {
    named: BTreeMap<String, Tensor>,
    mode: String,
}

fn layers(width: usize, mode: &str) -> Layers {
    let weight = |n: usize| Tensor::full([width, width], 0.1 + 0.1 * n as f32);
    let names = ["first".to_owned(), HOSTILE.to_owned(), "a \"third\" & last".to_owned()];
    Layers { named: names.into_iter().zip(0..).map(|(name, n)| (name, weight(n))).collect(), mode: mode.into() }
}

/// The page on a function that was called in many ways.
fn page(folder: &Path) -> String {
    let shift = Tensor::ones([1, 8]);
    let step = accelerate(|layers: &Layers, x: &Tensor| {
        let y = layers.named.values().fold(x + &shift, |y, w| y.matmul(w).tanh());
        let loss = (&y - y.mean(..)).square().mean(..);
        let grad: Vec<Tensor> = layers.named.values().map(|w| loss.grad(w)).collect();
        (loss, grad)
    })
    .named(HOSTILE);
    let call = |rows: usize, mode: &str| step.call(layers(8, mode), Tensor::ones([rows, 8])).unwrap();
    step.configure(|options| options.profiling = true);
    for rows in [32, 32, 7, 32, 32] {
        call(rows, "plain");
    }
    call(32, HOSTILE);
    step.configure(|options| options.profiling = false);
    step.configure(|options| options.capacity = 2);
    for rows in 1..9 {
        call(rows, "plain");
    }
    step.clear_cache();
    for rows in [32, 32, 7] {
        call(rows, "plain");
    }
    let nowhere = folder.join("absent").join("report.html");
    assert!(step.report_html(&nowhere).unwrap_err().to_string().contains("absent"));
    let path = folder.join("report.html");
    step.report_html(&path).unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">\n").unwrap();
    serde_json::from_str(rest.split_once("\n</script>").unwrap().0).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")).as_array().unwrap()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}")) as u64
}

#[test]
fn the_page_says_what_the_cache_knows() {
    let data = data(&page(&folder("data")));
    assert_eq!((number(&data, "/stats/hits"), number(&data, "/stats/misses")), (4, 13));
    assert_eq!(list(&data, "/stats/entries").len(), 2);
    let reasons: Vec<&str> = list(&data, "/misses").iter().map(|miss| miss["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons[..3], ["first_call", "new_shape", "new_static"]);
    assert_eq!(reasons[11..], ["cleared", "cleared"]);
    assert_eq!(data["stats"]["name"], HOSTILE);
    let machine = &data["machine"];
    assert_eq!(machine["processor"], serde_json::json!(retape_runtime::processor_model()));
    assert_eq!(machine["threads"], retape_runtime::n_threads());
    assert_eq!(machine["instruction_set"], retape_kernels::library::instruction_set());
    let history: Vec<(u64, u64)> =
        list(&data, "/history").iter().map(|at| (number(at, "/misses"), number(at, "/hits"))).collect();
    assert_eq!((history.len(), history[0], history[12]), (13, (1, 0), (13, 4)));
    assert_eq!(data["misses"][1]["signature"]["summaries"][0], "Layers (3 tensors, mode \"plain\")");
    assert_eq!(data["misses"][1]["signature"]["summaries"][1], "f32[7, 8]");
    let change = &list(&data, "/misses/1/differences")[0];
    assert_eq!((&change["path"], &change["old"], &change["new"]), (&"argument 1".into(), &"32".into(), &"7".into()));
    let advice = data["stats"]["advice"][0]["message"].as_str().unwrap();
    assert!(advice.starts_with("argument 1 axis 0 took"), "{advice}");
    for (entry, detail) in list(&data, "/stats/entries").iter().zip(list(&data, "/details")) {
        let captures = list(entry, "/captures");
        assert!(
            captures.len() == 1 && captures[0].as_str().unwrap().contains("tests/engine/report/mod.rs"),
            "{captures:?}"
        );
        let leaves = list(entry, "/signature/leaves");
        assert!(leaves.iter().any(|leaf| leaf["path"].as_str().unwrap().contains(HOSTILE.split('"').next().unwrap())));
        assert!(number(entry, "/arena_unshared_bytes") > number(detail, "/arena/bytes"), "no bytes are shared");
        check_drawing(detail);
    }
}

/// The assumptions of the drawings: groups cover the plan, members lie between what a group reads and writes, and no
/// two values that live at the same time share bytes of the arena, unless one takes the other's place.
fn check_drawing(detail: &Value) {
    let ids = |value: &Value, field: &str| -> Vec<usize> {
        value[field].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as usize).collect()
    };
    let (values, steps) = (list(detail, "/values"), list(detail, "/steps"));
    assert!(values.len() > 20 && steps.len() > 5, "{} values in {} groups", values.len(), steps.len());
    let covered: Vec<usize> = list(detail, "/launches")
        .iter()
        .flat_map(|launch| number(launch, "/steps/start") as usize..number(launch, "/steps/end") as usize)
        .collect();
    assert!((0..steps.len()).all(|step| covered.contains(&step)), "{covered:?} of {}", steps.len());
    for step in steps {
        let (reads, writes, members) = (ids(step, "reads"), ids(step, "writes"), ids(step, "members"));
        assert!(writes.iter().all(|id| members.contains(id)), "{step}");
        let args = members.iter().flat_map(|&id| ids(&values[id], "args"));
        for arg in args {
            assert!(members.contains(&arg) || reads.contains(&arg), "%{arg} is neither read nor made in {step}");
        }
        assert!(step["kind"] == "movement" || !step["lines"].as_array().unwrap().is_empty(), "{step}");
    }
    let size = number(detail, "/arena/bytes");
    let rects = list(detail, "/arena/allocations");
    assert!(!rects.is_empty());
    let span = |rect: &Value, first: &str, last: &str| (number(rect, first), number(rect, last));
    for (n, a) in rects.iter().enumerate() {
        assert!(number(a, "/offset") + number(a, "/len") <= size && number(a, "/first") <= number(a, "/last"), "{a}");
        for b in &rects[n + 1..] {
            let (lives_a, lives_b) = (span(a, "/first", "/last"), span(b, "/first", "/last"));
            let together = lives_a.0.max(lives_b.0) <= lives_a.1.min(lives_b.1);
            let (at_a, at_b) = (number(a, "/offset"), number(b, "/offset"));
            let shared = at_a.max(at_b) < (at_a + number(a, "/len")).min(at_b + number(b, "/len"));
            assert!(!together || !shared || b["over"] == a["value"], "{a} and {b}");
        }
    }
}

/// A joined value that no step copies has its memory from its first part on, and a maker.
#[test]
fn joined_values_are_drawn() {
    let step = accelerate(|x: &Tensor, w: &Tensor, keeps: &bool| {
        let mut state = x.clone();
        let mut next = || {
            state = state.matmul(w).tanh();
            state.matmul(w)
        };
        let parts: Vec<Tensor> = (0..9).map(|_| next()).collect();
        let whole = concat(&parts.iter().collect::<Vec<_>>(), 0);
        if *keeps { whole.matmul(&parts[2]) } else { (&whole - whole.mean(-1).unsqueeze(-1)).matmul(w) }
    });
    let (x, w) = (Tensor::full([16, 16], 0.5_f32), Tensor::full([16, 16], 0.25_f32));
    for keeps in [false, true] {
        step.call(&x, &w, keeps).unwrap();
    }
    let path = folder("joined").join("report.html");
    step.report_html(&path).unwrap();
    let data = data(&std::fs::read_to_string(path).unwrap());
    let mut taken_over = vec![];
    for detail in list(&data, "/details") {
        check_drawing(detail);
        let joins: Vec<&Value> = list(detail, "/values").iter().filter(|value| value["op"] == "concat").collect();
        assert_eq!(joins.len(), 1);
        let whole = list(detail, "/values").iter().position(|value| value["op"] == "concat").unwrap();
        let makers =
            list(detail, "/steps").iter().filter(|step| step["writes"].as_array().unwrap().contains(&whole.into()));
        assert_eq!(makers.count(), 1);
        let rects = list(detail, "/arena/allocations");
        assert_eq!(rects.iter().filter(|rect| rect["value"] == whole).count(), 1);
        taken_over.push(rects.iter().any(|rect| rect["over"] == whole));
        let plan = detail["plan_text"].as_str().unwrap();
        assert!(!plan.contains("join{"), "{plan}");
    }
    taken_over.sort_unstable();
    assert_eq!(taken_over, [false, true]);
}

#[test]
fn no_text_becomes_markup_and_nothing_is_loaded() {
    let page = page(&folder("text"));
    assert_eq!(page.matches("<script").count(), 2, "a text has begun an element");
    assert_eq!(page.matches("</script").count(), 2, "a text has ended an element");
    assert!(page.contains("default-src 'none'"));
    // The name space of SVG is a name, and no address that anything is loaded from.
    assert_eq!(page.matches("://").count(), page.matches("\"http://www.w3.org/2000/svg\"").count());
    for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn code_for_gradients_is_shown() {
    let model = accelerate(|w: &Tensor, x: &Tensor| x.matmul(w).tanh().sum(..));
    let x = Tensor::ones([4, 3]);
    for _ in 0..2 {
        value_and_grad(|w: &Tensor| model.call(w, &x).unwrap(), &Tensor::full([3, 2], 0.3_f32)).unwrap();
    }
    let path = folder("gradients").join("report.html");
    model.report_html(&path).unwrap();
    let data = data(&std::fs::read_to_string(path).unwrap());
    let code = &list(&data, "/stats/entries/0/gradients")[0];
    assert_eq!((number(code, "/calls"), &code["is_compiled"]), (2, &Value::Bool(true)));
    assert_eq!(code["arguments"], serde_json::json!([0]));
    assert_eq!((number(&data, "/stats/backward_hits"), number(&data, "/stats/backward_misses")), (1, 1));
}
