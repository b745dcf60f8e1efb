//! The page: data, as JSON, and a script that draws it.
//!
//! Text enters the page in two ways only: as JSON without `<`, `>` and `&`, and from there as text nodes; so no name,
//! label or path can become markup. A policy in the page's head forbids it to load anything.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use retape::Accelerated;
use retape::inspection::Inspection;
use serde_json::Value;

/// The graphs of so many entries are in the page, those used last.
const MAX_DRAWN: usize = 24;

/// The lists in a signature, which the page shows of entries only.
const LONG: [&str; 2] = ["leaves", "tensors"];

/// A page on an accelerated function and its cache; the [front page](crate#a-page-on-a-function) has an example.
pub trait Report {
    /// The page as HTML: headline numbers, entries with their graphs, memory and times, the log of misses, advice. It
    /// contains all it shows and loads nothing; any browser opens it.
    fn report(&self) -> String;

    /// Writes the page to a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, and names it.
    fn report_html(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        std::fs::write(path, self.report()).map_err(named)
    }
}

impl<F, Args, R> Report for Accelerated<F, Args, R> {
    fn report(&self) -> String {
        html(&data(&self.inspect(MAX_DRAWN)))
    }
}

fn html(data: &Value) -> String {
    let script = [
        include_str!("dom.js"),
        include_str!("tables.js"),
        include_str!("layout.js"),
        include_str!("facts.js"),
        include_str!("graph.js"),
        include_str!("charts.js"),
        include_str!("misses.js"),
        include_str!("entries.js"),
        include_str!("page.js"),
    ];
    let mut page = String::new();
    for line in include_str!("page.html").lines() {
        match line {
            "@style@" => page.push_str(include_str!("page.css")),
            "@script@" => page.push_str(&format!("\"use strict\";\n{{\n{}}}\n", script.concat())),
            "@data@" => page.extend([&*without_markup(&data.to_string()), "\n"]),
            _ => page.extend([line, "\n"]),
        }
    }
    page
}

/// The inspection, with the time and the version that made the page.
fn data(inspection: &Inspection) -> Value {
    let mut data = serde_json::to_value(inspection).expect("structs are maps, and their keys are texts");
    let written = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    data["written_seconds"] = written.as_secs_f64().into();
    data["version"] = retape::VERSION.into();
    for miss in data["misses"].as_array_mut().into_iter().flatten() {
        // The differences say it all, and leaves are many.
        miss["nearest"] = Value::Null;
        if let Some(signature) = miss["signature"].as_object_mut() {
            signature.retain(|name, _| !LONG.contains(&name.as_str()));
        }
    }
    data
}

/// JSON that cannot end a script element or begin another: the signs of markup stand in its texts only, as escapes.
fn without_markup(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", c as u32)),
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_cannot_leave_its_element() {
        let cases = [
            ("plain", r#""plain""#),
            ("a \"quoted\" \\ path", r#""a \"quoted\" \\ path""#),
            ("</script><script>", r#""\u003c/script\u003e\u003cscript\u003e""#),
            ("&lt;", r#""\u0026lt;""#),
            ("\u{0}\n\t", r#""\u0000\n\t""#),
            ("µ → \u{2028}\u{2029}", r#""µ → \u2028\u2029""#),
        ];
        for (text, expected) in cases {
            let written = without_markup(&Value::from(text).to_string());
            assert_eq!(written, expected);
            assert_eq!(serde_json::from_str::<Value>(&written).ok(), Some(Value::from(text)));
        }
    }
}
