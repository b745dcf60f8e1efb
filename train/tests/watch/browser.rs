//! The page in a real browser: live curves, reload, late viewers, the Stop button, keyboards, widths, colours.

use retape::{Tensor, accelerate};
use retape_train::monitor::{Monitor, Web};

use super::driver::Browser;
use super::folder;

/// Text that would run if it were not taken as text.
const HOSTILE: &str =
    "</script><script>document.documentElement.dataset.broken='yes'</script><img src=x onerror=alert(1)>";

/// Tells of the steps of a training that looks like one.
fn train(monitor: &mut Monitor, steps: std::ops::RangeInclusive<u64>) {
    for step in steps {
        let t = step as f64 / 400.0;
        let wave = (step as f64 * 1.7).sin() + (step as f64 * 0.37).cos();
        let loss = 2.3 * (-3.0 * t).exp() + 0.08 + 0.03 * wave;
        let loss = if step == 150 { f64::NAN } else { loss };
        let rate = 1e-3 * (step as f64 / 40.0).min(1.0) * (1.0 - t / 2.0);
        let scalars = [
            ("loss", loss),
            ("throughput", 5200.0 + 150.0 * wave),
            ("rate", rate),
            ("gradient norm", 1.0 + 0.4 * wave),
        ];
        monitor.step(step, step / 100, &scalars);
        if step % 25 == 0 {
            let accuracy = 0.97 - 0.85 * (-2.5 * t).exp();
            monitor.validation(step, step / 100, &[("loss", 1.15 * loss + 0.05), ("accuracy", accuracy)]);
        }
    }
}

fn told(monitor: &mut Monitor) {
    for (name, value) in [
        ("device", "cuda:0, NVIDIA H100 80GB"),
        ("model", "ResNet-18"),
        ("parameters", "11 173 962"),
        ("data", "CIFAR-10, 50 000 images"),
        ("optimiser", "SGD, momentum 0.9, weight decay 5e-4"),
        ("seed", "17"),
        (HOSTILE, HOSTILE),
    ] {
        monitor.info(name, value);
    }
    let function = accelerate(|x: &Tensor| x.square().sum(..));
    for (n, rows) in [32_usize, 32, 32, 7, 32, 32, 16, 32].into_iter().enumerate() {
        function.call(Tensor::ones([rows, 4])).unwrap();
        monitor.step(n as u64 + 1, 0, &[]);
        monitor.cache("train_step", &function);
    }
    monitor.note("checkpoint step-0000100 was written");
    monitor.note(HOSTILE);
}

#[test]
fn a_training_is_watched_and_stopped() {
    let folder = folder("browser");
    let Some(browser) = Browser::start(&folder) else { return };
    let mut monitor = Monitor::new("resnet18 <b>cifar</b>").web(Web::default()).unwrap().steps(400);
    told(&mut monitor);
    train(&mut monitor, 9..=240);
    let url = monitor.url().unwrap().to_owned();

    // Without the token the page asks for it, and takes it.
    let (plain, token) = url.split_once("?token=").unwrap();
    browser.open(plain);
    browser.type_into("#token", "0123456789abcdef");
    browser.press("\u{e007}"); // Enter
    browser.wait("document.body.textContent.includes('not the one')");
    browser.type_into("#token", token);
    browser.click("button");

    // A late viewer sees everything so far.
    browser.wait("document.querySelectorAll('[data-chart]').length >= 7");
    browser.wait("document.getElementById('status').dataset.status === 'running'");
    assert_eq!(browser.run("return document.getElementById('name').textContent"), "resnet18 <b>cifar</b>");
    let titles =
        browser.run("return [...document.querySelectorAll('#charts [data-chart]')].map((c) => c.dataset.chart)");
    assert_eq!(titles, serde_json::json!(["loss", "accuracy", "rate", "throughput", "gradient norm"]));
    browser.wait("document.querySelectorAll('#charts [data-chart=loss] path.line.training').length >= 2"); // a NaN breaks it
    // Of step 150, in training and in validation.
    assert_eq!(browser.run("return document.querySelectorAll('#charts [data-chart=loss] path.hole').length"), 2);
    assert_eq!(browser.run("return document.querySelectorAll('[data-cache=train_step] [data-miss]').length"), 3);
    let reason = "return document.querySelector('[data-miss=\"2\"]').textContent";
    let reason = browser.run(reason).as_str().unwrap().to_owned();
    assert!(reason.contains("new_shape") && reason.contains("argument 0 axis 0: 32 -> 7"), "{reason}");
    let facts = browser.run("return document.querySelector('.facts').textContent");
    assert_eq!(facts, "62.5 % hit rate5 hits3 misses3 entries");
    assert_eq!(browser.run("return document.querySelectorAll('#fields > div').length"), 7);

    // It draws what happens, without a reload.
    let before = browser.run("return document.getElementById('where').textContent").as_str().unwrap().to_owned();
    assert!(before.starts_with("Step 240 of 400 · epoch 2 · "), "{before}");
    train(&mut monitor, 241..=250);
    browser.wait("document.getElementById('where').textContent.startsWith('Step 250 of 400')");
    let live = "document.querySelector('#charts [data-chart=rate] .legend').textContent.includes('0.0006875')";
    browser.wait(live);
    browser.reload();
    browser.wait("document.querySelectorAll('#charts path.line').length > 5");
    browser.wait(live);

    looks(&browser, &folder);
    keyboard(&browser);

    // The click on Stop reaches the loop.
    assert!(!monitor.should_stop());
    browser.click("#stop");
    browser.wait("document.getElementById('confirm').open");
    browser.click("#really");
    let start = std::time::Instant::now();
    let mut step = 250;
    while !monitor.should_stop() {
        assert!(start.elapsed().as_secs() < 30, "the click does not reach the training");
        step += 1;
        train(&mut monitor, step..=step);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    browser.wait("document.getElementById('status').dataset.status === 'stopping'");
    assert_eq!(browser.run("return document.getElementById('stop').disabled"), true);
    monitor.finish().unwrap();
    browser.wait("document.getElementById('status').textContent === 'Finished'");

    assert_eq!(browser.run("return document.documentElement.dataset.broken ?? 'sound'"), "sound");
    assert_eq!(browser.run("return document.querySelectorAll('img, b b, #name b').length"), 0);
    let elsewhere = "return performance.getEntriesByType('resource').map((r) => r.name).filter((n) => !n.startsWith(location.origin))";
    assert_eq!(browser.run(elsewhere), serde_json::json!([]));
}

/// The faults that no width and no colour scheme may show.
const FAULTS: &str = r"
const faults = [];
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) faults.push(`the page is ${root.scrollWidth} wide in ${root.clientWidth}`);
const channels = (color) => color.match(/[\d.]+/g).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const color = channels(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
let n = 0;
for (const element of document.querySelectorAll('body *')) {
  const texts = [...element.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim());
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  if (!texts.length || !box.width || ['SCRIPT', 'STYLE'].includes(element.tagName)) continue;
  n += 1;
  const color = channels(element.namespaceURI.includes('svg') ? style.fill : style.color);
  const ratio = contrast(color, behind(element));
  if (ratio < 4.5 && !element.disabled) faults.push(`${element.tagName} ${element.className.baseVal ?? element.className} '${texts[0].textContent.slice(0, 20)}': contrast ${ratio.toFixed(2)}`);
  if (element.tagName === 'text') {
    const plot = element.closest('svg').getBoundingClientRect();
    if (box.left < plot.left - 1 || box.right > plot.right + 1 || box.bottom > plot.bottom + 1 || box.top < plot.top - 1) faults.push(`'${element.textContent}' is cut off`);
  }
}
for (const line of document.querySelectorAll('path.line')) {
  const ratio = contrast(channels(getComputedStyle(line).stroke), behind(line.closest('figure')));
  if (ratio < 3) faults.push(`a curve has contrast ${ratio.toFixed(2)}`);
}
for (const target of document.querySelectorAll('button')) {
  const box = target.getBoundingClientRect();
  if (box.height && (box.height < 24 || box.width < 24)) faults.push(`the button ${target.textContent} is ${box.width} by ${box.height}`);
}
const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
if (new Set(ids).size < ids.length) faults.push('an id is there twice');
if (n < 40) faults.push(`only ${n} texts were looked at`);
return faults;
";

fn looks(browser: &Browser, folder: &std::path::Path) {
    for width in [375, 800, 1400] {
        for scheme in ["light", "dark"] {
            browser.show(width, scheme);
            let width_is = format!("document.documentElement.clientWidth === {width}");
            browser.wait(&width_is);
            browser.wait("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
            assert_eq!(browser.run(FAULTS), serde_json::json!([]), "{width} {scheme}");
            browser.picture(&folder.join(format!("{scheme}-{width}.png")));
        }
    }
    let is_dark = "return getComputedStyle(document.body).backgroundColor";
    let (dark, ()) = (browser.run(is_dark), browser.click("#theme"));
    assert_ne!(browser.run(is_dark), dark, "the button changes the colours");
    assert_eq!(browser.run(FAULTS), serde_json::json!([]));
    browser.show(1400, "light");
}

fn keyboard(browser: &Browser) {
    // From the top: the link that skips, the theme, Stop.
    browser.reload();
    browser.wait("document.getElementById('status').dataset.status === 'running'");
    let focus = "return document.activeElement.id || document.activeElement.className";
    for expected in ["skip", "theme", "stop"] {
        browser.press("\u{e004}"); // Tab
        assert_eq!(browser.run(focus), expected);
    }
    assert_ne!(browser.run("return getComputedStyle(document.activeElement).outlineStyle"), "none");
    browser.press("\u{e007}"); // Enter
    browser.wait("document.getElementById('confirm').open");
    browser.press("\u{e00c}"); // Escape
    browser.wait("!document.getElementById('confirm').open");
    assert_eq!(browser.run(focus), "stop", "the focus is back where it was");

    // Arrows read values of a curve, and the log scale is a button.
    browser.run("document.querySelector('[data-chart=loss] .plot').focus()");
    browser.press("\u{e012}\u{e012}"); // left
    browser
        .wait("/step 2\\d\\d: training 0\\.\\d+/.test(document.querySelector('[data-chart=loss] .read').textContent)");
    browser.run("document.querySelector('[data-chart=loss] button').focus()");
    let ticks =
        "return [...document.querySelectorAll('[data-chart=loss] .plot text')].map((t) => t.textContent).join(' ')";
    let linear = browser.run(ticks);
    browser.press(" ");
    browser.wait("document.querySelector('[data-chart=loss] button').getAttribute('aria-pressed') === 'true'");
    assert_ne!(browser.run(ticks), linear);
    assert_eq!(browser.run(FAULTS), serde_json::json!([]));
}
