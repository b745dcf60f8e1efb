//! A browser without a window, driven by the DevTools protocol over a pipe: messages in JSON, each ended by a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than this no answer takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one open page; it ends when this is dropped.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    n_sent: u64,
    /// Messages that answer no command, since the page was opened.
    told: Vec<Value>,
}

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub width: u32,
    pub is_dark: bool,
}

impl View {
    pub fn scheme(self) -> &'static str {
        if self.is_dark { "dark" } else { "light" }
    }
}

/// A browser on this machine. Without one the tests that need it say so, unless it is required.
fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let found = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|p| p.is_file());
    if found.is_none() {
        let is_required = std::env::var("RETAPE_REQUIRE_BROWSER").is_ok_and(|value| value == "1");
        assert!(!is_required, "no browser is installed");
        eprintln!("skipped: no browser is installed");
    }
    found
}

impl Browser {
    /// Starts a browser whose profile lies in a folder; none if none is installed.
    pub fn start(folder: &Path) -> Option<Browser> {
        let program = installed()?;
        let profile = folder.join("profile");
        let _ = std::fs::remove_dir_all(&profile);
        // The protocol uses descriptors 3 and 4, which the shell makes of its own input and output.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--hide-scrollbars",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            // The browser itself must not look for the network either.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = vec![];
            while output.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser { process, to, from, session: None, n_sent: 0, told: vec![] };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let to_attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", to_attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn hear(&self) -> Value {
        self.from.recv_timeout(PATIENCE).expect("the browser answers")
    }

    /// Sends a command and waits for its result.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.n_sent += 1;
        let mut message = json!({ "id": self.n_sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut heard = self.hear();
            if heard["id"] == self.n_sent {
                assert!(heard["error"].is_null(), "{method}: {}", heard["error"]);
                return heard["result"].take();
            }
            self.told.push(heard);
        }
    }

    /// Opens a page and waits until it has drawn itself.
    pub fn open(&mut self, page: &Path, view: View) {
        let metrics = json!({ "width": view.width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = json!([{ "name": "prefers-color-scheme", "value": view.scheme() }]);
        self.ask("Emulation.setEmulatedMedia", json!({ "media": "", "features": scheme }));
        self.told.clear();
        self.ask("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while !self.told.iter().any(|told| told["method"] == "Page.loadEventFired") {
            let heard = self.hear();
            self.told.push(heard);
        }
        self.settle();
    }

    /// Shows the page as on paper.
    pub fn print(&mut self) {
        self.ask("Emulation.setEmulatedMedia", json!({ "media": "print", "features": [] }));
        self.settle();
    }

    /// Waits until what the page has asked for is drawn.
    pub fn settle(&mut self) {
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))");
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut outcome = self.ask("Runtime.evaluate", params);
        assert!(outcome["exceptionDetails"].is_null(), "{}", outcome["exceptionDetails"]);
        outcome["result"]["value"].take()
    }

    /// Presses and lets go of a key.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            self.ask("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "code": key, "text": text }));
        }
        self.settle();
    }

    /// Errors and whatever else the page wrote to the console since it was opened.
    pub fn problems(&self) -> Vec<String> {
        let methods = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        let is_problem = |told: &&Value| methods.iter().any(|method| told["method"] == *method);
        self.told.iter().filter(is_problem).map(|told| told["params"].to_string()).collect()
    }

    /// The whole page as a PNG file.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let size = self.evaluate("[innerWidth, document.documentElement.scrollHeight]");
        // Taller pictures than this the browser does not make.
        let height = size[1].as_u64().unwrap().min(16_000);
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
        let params = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        from_base64(self.ask("Page.captureScreenshot", params)["data"].as_str().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes that a text in base 64 stands for.
fn from_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c} is no digit"),
    };
    let digits: Vec<u32> = text.bytes().filter(|&c| c != b'=').map(|c| digit(c).into()).collect();
    let bytes = digits.chunks(4).flat_map(|chunk| {
        let all = (0..4).fold(0_u32, |all, n| all << 6 | chunk.get(n).copied().unwrap_or(0));
        all.to_be_bytes()[1..chunk.len()].to_vec()
    });
    bytes.collect()
}

#[test]
fn base_64_is_read() {
    assert_eq!(from_base64("TWFu"), b"Man");
    assert_eq!(from_base64("TWE="), b"Ma");
    assert_eq!(from_base64("/+8A"), [0xff, 0xef, 0]);
}
