//! The server of the page: three addresses, on a thread of its own.
//!
//! - `GET /` the page, which loads nothing else;
//! - `GET /events` a stream of server-sent events: the history, then what happens;
//! - `POST /stop` asks for a stop after the current step.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::sync::watch;
use tokio::time::sleep;

use super::guard::{Guard, Refusal};
use super::history::{History, Message, Status};
use super::patience::Impatient;
use super::secret;
use crate::lock::lock;
use crate::progress::Stop;

/// Messages that a viewer may be behind; one that is further behind gets the history again.
pub(super) const MAX_BEHIND: usize = 4096;

/// How many streams are open at most.
const MAX_VIEWERS: usize = 32;

/// The least time between two messages to a viewer: people see no more, and browsers need time to draw.
const REST: Duration = Duration::from_millis(150);

/// How long viewers have to take the last message when the run ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// How soon a browser tries again when the stream broke off.
const RETRY: Duration = Duration::from_secs(2);

/// The part of a page that the loop and the server share.
pub(super) struct PageState {
    pub(super) guard: Guard,
    pub(super) stop: Stop,
    pub(super) history: Mutex<History>,
    /// Every message of the run; sending never waits. `None` is the last one.
    pub(super) messages: Sender<Option<Arc<str>>>,
    pub(super) n_viewers: AtomicUsize,
}

impl PageState {
    /// The history, which is sound after every change.
    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Tells viewers if a stop was asked for, by whatever means.
    pub(super) fn tell_of_stop(&self) {
        let mut history = self.history();
        if self.stop.is_requested() && history.set_status(Status::Stopping) {
            self.send(&Message::Status { status: Status::Stopping });
        }
    }

    /// Sends a message to all who watch. Call it with the history locked, so that no viewer misses it or gets it twice.
    pub(super) fn send(&self, message: &Message<'_>) {
        if self.messages.receiver_count() > 0 {
            // It fails if the last viewer has just left.
            let _ = self.messages.send(Some(message.json().into()));
        }
    }

    /// The history so far, and everything after it.
    fn join(&self) -> (History, Receiver<Option<Arc<str>>>) {
        let history = self.history();
        (history.clone(), self.messages.subscribe())
    }
}

/// Serves until the sender of `end` is dropped, and then as long as viewers need to hear the last message.
pub(super) async fn serve(listener: tokio::net::TcpListener, shared: Arc<PageState>, end: watch::Receiver<()>) {
    let ended = |mut end: watch::Receiver<()>| async move { while end.changed().await.is_ok() {} };
    let server = axum::serve(Impatient::new(listener), router(shared)).with_graceful_shutdown(ended(end.clone()));
    tokio::select! {
        // A listener that tries again never fails.
        _ = server => {}
        () = async { ended(end).await; sleep(FAREWELL).await } => {}
    }
}

fn router(shared: Arc<PageState>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/stop", post(stop))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), check))
        .with_state(shared)
}

/// Refuses requests that the guard refuses, before anything else looks at them, and marks every answer as private.
async fn check(State(shared): State<Arc<PageState>>, request: Request, next: Next) -> Response {
    let is_page = request.uri().path() == "/";
    let mut response = match shared.guard.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(Refusal::Host) => {
            let text = "This name or page is not known to the training. Use the address that it printed, or add the name \
                        to its settings.\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Err(refusal) => {
            let mut response = if is_page { ask(refusal) } else { "The token is missing or wrong.\n".into_response() };
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    };
    let private = [
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in private {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A page with its parts in it, of which only these run.
fn html(page: &str) -> Response {
    let nonce = secret::draw();
    let page = page
        .replace("/* style */", include_str!("page/page.css"))
        .replace("/* curve */", include_str!("page/curve.js"))
        .replace("/* chart */", include_str!("page/chart.js"))
        .replace("/* script */", include_str!("page/page.js"))
        .replace("{nonce}", &nonce);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let mut response = Html(page).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// The page that asks for the token.
fn ask(refusal: Refusal) -> Response {
    let hint = if refusal == Refusal::WrongToken { "This token is not the one that the training printed." } else { "" };
    html(&include_str!("page/token.html").replace("{hint}", hint))
}

async fn page() -> Response {
    html(include_str!("page/page.html"))
}

async fn stop(State(shared): State<Arc<PageState>>) -> StatusCode {
    shared.stop.request();
    shared.tell_of_stop();
    StatusCode::NO_CONTENT
}

/// A viewer's place in the messages; counted while it lives.
struct Viewer {
    shared: Arc<PageState>,
    receiver: Receiver<Option<Arc<str>>>,
    /// The history that the viewer is to get first, as JSON.
    first: Option<String>,
    is_done: bool,
}

impl Viewer {
    /// None if there are too many.
    fn new(shared: Arc<PageState>) -> Option<Viewer> {
        let (history, receiver) = shared.join();
        if shared.n_viewers.fetch_add(1, Ordering::AcqRel) >= MAX_VIEWERS {
            shared.n_viewers.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        // As text only here: the loop waits for the lock, and a copy is quick.
        let first = Message::History { history: &history }.json();
        Some(Viewer { shared, receiver, first: Some(first), is_done: false })
    }

    /// Starts from the history again.
    fn rejoin(&mut self) -> Vec<Arc<str>> {
        let (history, receiver) = self.shared.join();
        self.receiver = receiver;
        vec![Message::History { history: &history }.json().into()]
    }

    /// The next messages as a JSON array; none when the run is over.
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(format!("[{first}]"));
        }
        if self.is_done {
            return None;
        }
        sleep(REST).await;
        let mut batch: Vec<Arc<str>> = match self.receiver.recv().await {
            Ok(Some(message)) => vec![message],
            Ok(None) | Err(RecvError::Closed) => return None,
            Err(RecvError::Lagged(_)) => self.rejoin(),
        };
        loop {
            match self.receiver.try_recv() {
                Ok(Some(message)) => batch.push(message),
                Ok(None) | Err(TryRecvError::Closed) => {
                    self.is_done = true;
                    break;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Lagged(_)) => batch = self.rejoin(),
            }
        }
        Some(format!("[{}]", batch.join(",")))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.shared.n_viewers.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn events(State(shared): State<Arc<PageState>>) -> Response {
    let Some(viewer) = Viewer::new(shared) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.\n").into_response();
    };
    let mut response = Sse::new(stream(viewer)).keep_alive(KeepAlive::default()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response
}

fn stream(viewer: Viewer) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    unfold(viewer, async |mut viewer| {
        let messages = viewer.next().await?;
        Some((Ok(sse::Event::default().retry(RETRY).data(messages)), viewer))
    })
}
