//! The page as a browser draws it: at three widths, in both schemes, pressed everywhere, by keys, and on paper.
//!
//! Each view is left as `report/SUBJECT-WIDTH-SCHEME.png` in the target's folder for tests.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use serde_json::Value;

use super::browser::{Browser, View};
use super::{data, folder, list, number, page, subjects};

const WIDTHS: [u32; 3] = [1400, 800, 375];

/// A sheet of paper, 210 mm wide, seen by one who prefers dark screens.
const PAPER: View = View { width: 794, is_dark: true };

/// Lists what a reader could not read or reach.
const AUDIT: &str = include_str!("audit.js");

fn views() -> impl Iterator<Item = View> {
    WIDTHS.into_iter().flat_map(|width| [false, true].map(|is_dark| View { width, is_dark }))
}

/// Fails unless the page has drawn itself without a word of complaint.
fn check_drawn(browser: &mut Browser, of: &str) {
    let state = browser
        .evaluate("({ ...document.documentElement.dataset, loaded: performance.getEntriesByType('resource').length })");
    assert_eq!((&state["ready"], &state["error"]), (&"true".into(), &Value::Null), "{of}: {state}");
    assert_eq!(state["broken"], Value::Null, "{of}: a text ran as a script");
    assert_eq!(state["loaded"], 0, "{of}: the page loaded something");
    assert_eq!(browser.problems(), [""; 0], "{of}");
}

/// Fails if a picture shows nothing, or is not in its scheme.
fn check_picture(png: &[u8], view: View, of: &str) {
    let mut picture = png::Decoder::new(Cursor::new(png)).read_info().unwrap();
    assert_eq!((picture.info().width, picture.info().bit_depth), (view.width, png::BitDepth::Eight), "{of}");
    let mut bytes = vec![0; picture.output_buffer_size().unwrap()];
    picture.next_frame(&mut bytes).unwrap();
    // A part of the pixels, which no column of the picture escapes; the fourth channel, if any, is opacity.
    let pixels = bytes.chunks_exact(picture.info().color_type.samples()).step_by(13);
    let luma: Vec<u32> = pixels.map(|pixel| pixel[..3].iter().map(|&channel| u32::from(channel)).sum()).collect();
    let mean = luma.iter().map(|&luma| u64::from(luma)).sum::<u64>() / (3 * luma.len() as u64);
    assert!(if view.is_dark { (5..100).contains(&mean) } else { (155..254).contains(&mean) }, "{of}: mean {mean}");
    // In any eighth of the page there are letters: both dark and light.
    for (n, part) in luma.chunks(luma.len().div_ceil(8)).enumerate() {
        let (least, most) = (part.iter().min().unwrap(), part.iter().max().unwrap());
        assert!(most - least > 300, "{of}: part {n} of 8 is blank");
    }
}

#[test]
fn every_view_is_drawn_and_can_be_read() {
    let folder = folder("views");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&pictures).unwrap();
    let mut findings = vec![];
    for subject in subjects::all() {
        for view in views() {
            let of = format!("{}-{}-{}", subject.name, view.width, view.scheme());
            browser.open(&subject.page, view);
            check_drawn(&mut browser, &of);
            assert_eq!(browser.evaluate("innerWidth"), view.width, "{of}");
            let png = browser.screenshot();
            std::fs::write(pictures.join(format!("{of}.png")), &png).unwrap();
            let found = browser.evaluate(AUDIT);
            findings.extend(found.as_array().unwrap().iter().map(|finding| format!("{of}: {finding}")));
            check_picture(&png, view, &of);
        }
        let of = format!("{}-print", subject.name);
        browser.open(&subject.page, PAPER);
        browser.print();
        let png = browser.screenshot();
        std::fs::write(pictures.join(format!("{of}.png")), &png).unwrap();
        check_picture(&png, View { is_dark: false, ..PAPER }, &of);
        let controls = "[...document.querySelectorAll('.tools, .top, button.wide, .shade')]";
        assert_eq!(browser.evaluate(&format!("{controls}.filter((e) => e.checkVisibility()).length")), 0, "{of}");
        assert!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth").as_bool().unwrap(), "{of}");
        let is_small =
            "[...document.querySelectorAll('.graph')].some((graph) => graph.getBoundingClientRect().height < 90)";
        assert_eq!(browser.evaluate(is_small), false, "{of}: the graph has shrunk");
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

const DESKTOP: View = View { width: 1280, is_dark: false };

/// How many elements a selector finds.
fn count(browser: &mut Browser, selector: &str) -> u64 {
    browser.evaluate(&format!("document.querySelectorAll(`{selector}`).length")).as_u64().unwrap()
}

#[test]
fn a_browser_draws_all_of_it() {
    let folder = folder("drawn");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let data = data(&page(&folder));
    browser.open(&folder.join("report.html"), DESKTOP);
    check_drawn(&mut browser, "drawn");
    let detail = &data["details"][0];
    let expected = [
        ("[data-entry]", list(&data, "/stats/entries").len()),
        ("[data-miss]", list(&data, "/misses").len()),
        ("[data-group]", list(detail, "/steps").len()),
        ("[data-arena]", list(detail, "/arena/allocations").len()),
        (".mark", list(&data, "/misses").len()),
    ];
    for (selector, n) in expected {
        assert_eq!(count(&mut browser, selector), n as u64, "{selector}");
    }
    assert_eq!(browser.evaluate("document.querySelector('h1').textContent"), super::HOSTILE);
}

/// The step whose measured unit takes the largest part of a call.
fn slowest(detail: &Value) -> u64 {
    let mut units: Vec<(u64, u64, f64)> = vec![];
    for launch in list(detail, "/launches") {
        let (first, end) = (number(launch, "/steps/start"), number(launch, "/steps/end"));
        let mean = launch["mean_seconds"].as_f64().unwrap();
        match units.last_mut() {
            Some(last) if first < last.1 => *last = (last.0, end, last.2 + mean),
            _ => units.push((first, end, mean)),
        }
    }
    units.iter().max_by(|a, b| a.2.total_cmp(&b.2)).unwrap().0
}

#[test]
fn the_graph_opens_whole_with_the_slowest_group_chosen() {
    let folder = folder("graph");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let training = subjects::named("training");
    let data = training.data();
    for width in WIDTHS {
        browser.open(&training.page, View { width, is_dark: false });
        let found = browser.evaluate(
            "(() => {
              const box = (selector) => document.querySelector(selector).getBoundingClientRect();
              const [canvas, graph] = [box('.canvas'), box('.graph')];
              const isInside = graph.left >= canvas.left && graph.right <= canvas.right && graph.top >= canvas.top && graph.bottom <= canvas.bottom;
              return [isInside, graph.height > 0.8 * canvas.height || graph.width > 0.8 * canvas.width,
                Number(document.querySelector('.group.chosen').dataset.group), document.querySelector('.panel h4').textContent, scrollY];
            })()",
        );
        let slowest = slowest(&data["details"][0]);
        let label = &data["details"][0]["steps"][slowest as usize]["label"];
        let title = format!("Group {slowest}{}", label.as_str().unwrap());
        assert_eq!(found, serde_json::json!([true, true, slowest, title, 0]), "{width}");
    }
}

#[test]
fn the_hit_rate_begins_with_the_first_call() {
    let folder = folder("rate");
    let Some(mut browser) = Browser::start(&folder) else { return };
    for name in ["many_misses", "small", "training"] {
        let subject = subjects::named(name);
        let data = subject.data();
        browser.open(&subject.page, DESKTOP);
        let found = browser.evaluate(
            "(() => {
              const curve = document.querySelector('#cache .curve');
              const [first, last] = [0, curve.getTotalLength()].map((at) => curve.getPointAtLength(at));
              const grid = document.querySelector('#cache .grid');
              const [bottom, top] = [0, 4].map((k) => document.querySelectorAll('#cache .grid')[k].y1.baseVal.value);
              const near = (a, b) => Math.abs(a - b) < 0.2;
              const rate = (point) => (point.y - bottom) / (top - bottom);
              return { from: curve.dataset.from, left: near(first.x, grid.x1.baseVal.value), right: near(last.x, grid.x2.baseVal.value), first: rate(first), last: rate(last) };
            })()",
        );
        assert_eq!(
            (&found["from"], &found["left"], &found["right"]),
            (&"1".into(), &true.into(), &true.into()),
            "{name}"
        );
        let hits = number(&data, "/stats/hits") as f64;
        let expected = hits / (hits + number(&data, "/stats/misses") as f64);
        let (first, last) = (found["first"].as_f64().unwrap(), found["last"].as_f64().unwrap());
        assert!(first.abs() < 0.01 && (last - expected).abs() < 0.01, "{name}: {found} {expected}");
    }
}

/// Each miss has a sign in the chart, in the log and in the legends of both, and errors are told.
#[test]
fn misses_have_signs_that_are_explained() {
    let folder = folder("misses");
    let Some(mut browser) = Browser::start(&folder) else { return };
    for name in ["many_misses", "errors"] {
        let subject = subjects::named(name);
        let data = subject.data();
        browser.open(&subject.page, DESKTOP);
        let family = |miss: &Value| match (miss["error"].as_str(), miss["reason"].as_str().unwrap()) {
            (Some(_), _) => "failed",
            (None, "first_call") => "first",
            (None, "evicted") => "evicted",
            (None, "cleared") => "cleared",
            (None, _) => "changed",
        };
        let misses = list(&data, "/misses");
        let mut families: BTreeMap<&str, u64> = BTreeMap::new();
        misses.iter().for_each(|miss| *families.entry(family(miss)).or_default() += 1);
        assert!(families.len() > 1, "{name}: {families:?}");
        for (family, n) in families {
            assert_eq!(count(&mut browser, &format!(".mark.{family}")), n, "{name}: {family}");
            for place in ["figure .legend", "#misses > .legend", "#misses td"] {
                assert!(count(&mut browser, &format!("{place} .sign-key.{family}")) > 0, "{name}: {family} in {place}");
            }
        }
        let failed = misses.iter().filter(|miss| !miss["error"].is_null()).count() as u64;
        assert_eq!(count(&mut browser, "#misses .error"), failed, "{name}");
        let told =
            "[...document.querySelectorAll('figure .legend b')].reduce((sum, b) => sum + Number(b.textContent), 0)";
        assert_eq!(browser.evaluate(told), misses.len(), "{name}");
    }
}

/// Presses everything that can be pressed, and says what is there then.
const PRESS: &str = "(async () => {
  const press = (element) => element.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  const all = (selector) => [...document.querySelectorAll(selector)];
  all('button.wide, summary').forEach(press);
  for (const row of all('[data-entry]')) press(row);
  const n = all('[data-group]').length;
  for (let k = 0; k < n; k += 1) press(document.querySelector(`[data-group=\"${k}\"]`));
  for (const button of all('.tools button')) press(button);
  press(all('.tools button').find((button) => button.textContent === 'Open all'));
  all('.op, .pill, .life, .mark, .stages').forEach((element) => element.dispatchEvent(new PointerEvent('pointermove', { clientX: 9, clientY: 9 })));
  all('input[type=radio], input[type=checkbox]').forEach((input) => input.click());
  press(document.querySelector('header button'));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const root = document.documentElement;
  return { ops: all('.op:not(.outside)').length, theme: root.dataset.theme, overflow: root.scrollWidth > innerWidth };
})()";

#[test]
fn what_can_be_pressed_works() {
    let folder = folder("pressed");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let data = data(&page(&folder));
    for width in WIDTHS {
        browser.open(&folder.join("report.html"), View { width, is_dark: false });
        let found = browser.evaluate(PRESS);
        check_drawn(&mut browser, "pressed");
        // The last entry that was chosen is the one that is open.
        let last = list(&data, "/details").last().unwrap();
        let members: usize = list(last, "/steps").iter().map(|step| step["members"].as_array().unwrap().len()).sum();
        assert_eq!(found, serde_json::json!({ "ops": members, "theme": "dark", "overflow": false }), "{width}");
    }
}

#[test]
fn keys_reach_all_of_it() {
    let folder = folder("keys");
    let Some(mut browser) = Browser::start(&folder) else { return };
    page(&folder);
    browser.open(&folder.join("report.html"), DESKTOP);
    // A drawing is one stop, however many parts it has.
    for drawing in [".graph", "#entry .plot", "#cache .plot"] {
        assert_eq!(count(&mut browser, &format!("{drawing} [tabindex='0']")), 1, "{drawing}");
    }
    let focused = "Number(document.activeElement.dataset.group)";
    let chosen = "Number(document.querySelector('.group.chosen').dataset.group)";
    browser.evaluate("document.querySelector('[data-group][tabindex=\"0\"]').focus()");
    browser.press("Home");
    assert_eq!(browser.evaluate(focused), 0);
    for key in ["ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft"] {
        browser.press(key);
    }
    assert_eq!(browser.evaluate(focused), 2);
    assert!(browser.evaluate("!document.getElementById('hover').hidden").as_bool().unwrap(), "it explains itself");
    browser.press("Enter");
    assert_eq!(browser.evaluate(chosen), 2);
    assert_eq!(browser.evaluate("document.querySelector('.panel .ordinal').textContent"), "Group 2");
    browser.press("End");
    assert_eq!(browser.evaluate(focused), count(&mut browser, "[data-group]") - 1);
    // Rows of entries are chosen by their buttons.
    browser.evaluate("document.querySelector('[data-entry=\"1\"] .choice').focus()");
    browser.press("Enter");
    assert_eq!(browser.evaluate("Number(document.querySelector('.chosen[data-entry]').dataset.entry)"), 1);
}
