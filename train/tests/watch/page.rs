//! The page's server: the viewers it lets in, the data they get, and that nobody holds the training up.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use retape_train::Error;
use retape_train::monitor::{Monitor, Web};

use super::viewer::Address;

fn served() -> (Monitor, Address) {
    let monitor = Monitor::new("served").web(Web::default()).unwrap();
    let address = Address::new(monitor.url().unwrap());
    (monitor, address)
}

#[test]
fn only_who_has_the_token_gets_in() {
    let (monitor, address) = served();
    for path in ["/", "/?token=", "/?token=0123456789abcdef0123456789abcdef"] {
        let answer = address.ask(&format!("GET {path}"), &[]);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.body.contains("<form") && answer.body.contains("type=\"password\""), "{}", answer.body);
        assert_eq!(answer.body.contains("not the one"), path != "/");
    }
    for first in ["GET /events", "GET /events?token=wrong", "POST /stop", "GET /nothing", "DELETE /"] {
        assert_eq!(address.ask(first, &[]).status, 401, "{first}");
    }
    let answer = address.ask(&format!("GET /?token={}", address.token), &[]);
    assert_eq!(answer.status, 200);
    let head = &answer.head;
    assert!(head.contains("cache-control: no-store") && head.contains("referrer-policy: no-referrer"), "{head}");
    assert!(head.contains("default-src 'none'") && head.contains("frame-ancestors 'none'"), "{head}");
    assert_eq!(address.ask("GET /", &[&address.bearer()]).status, 200);
    assert_eq!(address.ask("GET /nothing", &[&address.bearer()]).status, 404);
    assert!(!monitor.should_stop());
}

#[test]
fn other_names_and_other_sites_are_refused() {
    let (monitor, address) = served();
    let bearer = address.bearer();
    for host in ["Host: evil.example", "Host: 127.0.0.1.evil.example", "Host: 192.168.1.1"] {
        assert_eq!(address.ask("GET /", &[host, &bearer]).status, 403, "{host}");
        assert_eq!(address.ask("POST /stop", &[host, &bearer]).status, 403, "{host}");
    }
    assert_eq!(address.ask("GET /", &["Host: localhost:1", &bearer]).status, 200);
    // A page of another site that somehow knows the token cannot stop the run, nor can an image or a form.
    assert_eq!(address.ask("POST /stop", &[&bearer, "Origin: http://evil.example"]).status, 403);
    assert_eq!(address.ask(&format!("POST /stop?token={}", address.token), &[]).status, 401);
    assert_eq!(address.ask(&format!("GET /stop?token={}", address.token), &[]).status, 405);
    assert!(!monitor.should_stop());
    assert_eq!(address.ask("POST /stop", &[&bearer]).status, 204);
    assert!(monitor.should_stop());

    let monitor = Monitor::new("named").web(Web::default().host("GPU-box").token("a-token-of-mine")).unwrap();
    let address = Address::new(monitor.url().unwrap());
    assert_eq!(address.token, "a-token-of-mine");
    assert_eq!(address.ask("GET /", &["Host: gpu-BOX:80", &address.bearer()]).status, 200);
    assert!(matches!(Monitor::new("short").web(Web::default().token("short")), Err(Error::Argument { .. })));
}

#[test]
fn a_page_loads_nothing_and_makes_no_markup() {
    let (_monitor, address) = served();
    let pages = [address.ask("GET /", &[&address.bearer()]).body, address.ask("GET /", &[]).body];
    for page in pages {
        assert!(!page.contains("{nonce}") && !page.contains("/* script */") && !page.contains("/* style */"));
        // The name space of SVG is a name, and no address that anything is loaded from.
        assert_eq!(page.matches("://").count(), page.matches("\"http://www.w3.org/2000/svg\"").count());
        let forbidden = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("];
        for forbidden in forbidden.iter().chain(&["src=", "style=", "onclick"]) {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}

#[test]
fn who_comes_late_gets_the_history_and_then_what_happens() {
    let (mut monitor, address) = served();
    monitor = monitor.steps(5000);
    monitor.info("device", "cpu");
    for step in 1..=3000_u64 {
        monitor.step(step, step / 1000, &[("loss", if step == 1234 { 77.0 } else { 1.0 / step as f64 })]);
    }
    monitor.validation(3000, 3, &[("loss", 0.5)]);
    monitor.note("late");
    let mut viewer = address.watch();
    let first = viewer.next().unwrap();
    let history = &first[0]["history"];
    assert_eq!(
        (&first[0]["kind"], &history["name"], &history["status"]),
        (&"history".into(), &"served".into(), &"running".into())
    );
    assert_eq!((&history["n_steps"], &history["step"], &history["epoch"]), (&5000.into(), &3000.into(), &3.into()));
    assert_eq!(history["info"], serde_json::json!([["device", "cpu"]]));
    assert_eq!(history["notes"][0]["text"], "late");
    let bins = history["curves"][0]["bins"].as_array().unwrap();
    assert!(bins.len() <= 1024 && bins.iter().any(|bin| bin["max"] == 77.0) && bins[0]["from"] == 1, "{}", bins.len());
    assert_eq!(history["curves"][1]["phase"], "validation");

    monitor.step(3001, 3, &[("loss", f64::NAN)]);
    let record = viewer.find("record");
    assert_eq!(record["scalars"], serde_json::json!([["loss", "NaN"]]));
    monitor.stop().request();
    monitor.step(3002, 3, &[]);
    assert_eq!(viewer.find("status")["status"], "stopping");
    monitor.finish().unwrap();
    assert_eq!(viewer.find("status")["status"], "finished");
    assert!(viewer.next().is_none());
}

#[test]
fn no_viewer_holds_the_training_up() {
    let (mut monitor, address) = served();
    // Viewers who join, and then take nothing.
    let mut idle: Vec<_> = (0..3).map(|_| address.watch()).collect();
    let name = "x".repeat(2000);
    let start = Instant::now();
    for step in 1..=20_000 {
        monitor.step(step, 0, &[(&name, step as f64)]);
    }
    // 40 MB for each viewer, which no socket holds. A loop that waited would wait for 20 seconds at least.
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
    // One who wakes up gets the end all the same: from the messages, or from the history anew.
    let mut seen = 0;
    while seen < 20_000 {
        for message in idle[0].next().unwrap() {
            let step = if message["kind"] == "history" { &message["history"]["step"] } else { &message["step"] };
            seen = step.as_u64().unwrap();
        }
    }
    let start = Instant::now();
    monitor.finish().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "viewers who take nothing hold the end up");
    assert!(std::net::TcpStream::connect(&address.host).is_err(), "the server is still there");
}

#[test]
fn there_are_not_too_many_viewers() {
    let (_monitor, address) = served();
    let mut viewers: Vec<_> = (0..32).map(|_| address.watch()).collect();
    viewers.iter_mut().for_each(|viewer| assert_eq!(viewer.next().unwrap()[0]["kind"], "history"));
    let asked = format!("GET /events?token={}", address.token);
    assert_eq!(address.ask(&asked, &[]).status, 503);
    viewers.pop();
    let start = Instant::now();
    // The server hears of it when it next writes to that viewer, or reads from it.
    loop {
        let mut viewer = address.watch();
        if viewer.next().is_some() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "a viewer who left still counts");
    }
}

#[test]
fn a_port_in_use_is_named_and_a_port_is_given_back() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = Monitor::new("taken").web(Web::default().port(port)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("127.0.0.1:{port}: the port is in use; give another one, or 0 for any that is free")
    );
    drop(taken);
    for _ in 0..3 {
        let monitor = Monitor::new("free").web(Web::default().port(port)).unwrap();
        let address = Address::new(monitor.url().unwrap());
        assert_eq!(address.host, format!("127.0.0.1:{port}"));
        assert_eq!(address.ask("GET /", &[&address.bearer()]).status, 200);
    }
    let error = Monitor::new("elsewhere").web(Web::default().address([192, 0, 2, 1])).unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
    // On all interfaces: the printed address is one that this machine reaches, and other addresses are served.
    let monitor = Monitor::new("everywhere").web(Web::default().address([0, 0, 0, 0])).unwrap();
    let address = Address::new(monitor.url().unwrap());
    assert_eq!(address.ask("GET /", &[&address.bearer(), "Host: 192.0.2.7:80"]).status, 200);
    assert_eq!(address.ask("GET /", &[&address.bearer(), "Host: evil.example"]).status, 403);
}
