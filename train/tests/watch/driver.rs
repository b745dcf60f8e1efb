//! A browser that does what a person does: a client of WebDriver (W3C) for `chromedriver`, over plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The name under which WebDriver gives elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Dropping it closes both it and its driver.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

impl Browser {
    /// Starts a browser; none, with a message, where it or its driver is not installed and not required.
    pub(crate) fn start(folder: &Path) -> Option<Browser> {
        let browser = program(&["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]);
        let (Some(browser), Some(driver)) = (browser, program(&["chromedriver"])) else {
            let is_required = std::env::var("RETAPE_REQUIRE_BROWSER").is_ok_and(|value| value == "1");
            assert!(!is_required, "no browser with a driver is installed");
            eprintln!("skipped: no browser with a driver is installed");
            return None;
        };
        let mut driver = Command::new(driver).arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = output.find_map(|line| {
            let line = line.unwrap();
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        // The driver must find a reader as long as it lives.
        std::thread::spawn(move || output.for_each(drop));
        let mut browser_ = Browser { driver, port: port.unwrap(), session: String::new() };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            // Nothing but this machine is there for the page.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            &format!("--user-data-dir={}", folder.join("profile").display()),
        ];
        let options = json!({"binary": browser, "args": arguments});
        let asked = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}});
        let session = browser_.send("POST", "/session", Some(asked));
        browser_.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser_)
    }

    fn send(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let body = body.map_or(String::new(), |body| body.to_string());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        // The driver says how long its answer is, and leaves the connection open.
        let (mut stream, mut line, mut length) = (BufReader::new(stream), String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "{method} {path}: the driver is gone");
            if let Some((_, value)) =
                line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {}", answer["value"]);
        answer["value"].take()
    }

    fn post(&self, path: &str, body: Value) -> Value {
        self.send("POST", &format!("{}{path}", self.session), Some(body))
    }

    pub(crate) fn open(&self, url: &str) {
        self.post("/url", json!({"url": url}));
    }

    pub(crate) fn reload(&self) {
        self.post("/refresh", json!({}));
    }

    /// The value of a script's `return`.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&self, expression: &str) {
        let start = Instant::now();
        while self.run(&format!("return Boolean({expression})")) != true {
            assert!(start.elapsed() < Duration::from_secs(60), "never true: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn find(&self, selector: &str) -> String {
        let found = self.post("/element", json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks an element where it is seen, as a mouse does.
    pub(crate) fn click(&self, selector: &str) {
        self.post(&format!("/element/{}/click", self.find(selector)), json!({}));
    }

    /// Types text into an element.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        self.post(&format!("/element/{}/value", self.find(selector)), json!({"text": text}));
    }

    /// Presses keys one after another, wherever the focus is.
    pub(crate) fn press(&self, keys: &str) {
        let moves = |key: char| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let moves: Vec<Value> = keys.chars().flat_map(moves).collect();
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keys", "actions": moves}]}));
    }

    /// A command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// Makes the window so wide, and prefers a colour scheme.
    pub(crate) fn show(&self, width: u32, scheme: &str) {
        let size = json!({"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Writes the whole page as a picture.
    pub(crate) fn picture(&self, path: &Path) {
        let picture = self.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": true, "format": "png"}));
        std::fs::write(path, base64(picture["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A failing test drops it while it panics, when the session may be what failed.
        if !std::thread::panicking() {
            self.send("DELETE", &self.session, None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The bytes of a text in Base64 (RFC 4648, section 4).
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|c| DIGITS.iter().position(|digit| *digit == c));
    let (mut bytes, mut bits, mut n_bits) = (vec![], 0_u32, 0);
    for digit in digits {
        bits = (bits << 6 | digit as u32) & 0xffff;
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((bits >> n_bits) as u8);
        }
    }
    bytes
}
