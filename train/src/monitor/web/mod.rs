//! A page in the browser on a running training, served from this machine.
//!
//! A run is private, and its Stop button must not be anybody's: the page is bound to the loopback interface unless other
//! addresses are asked for, asks for a token, and refuses names of hosts that are not this machine's.
//!
//! The loop never waits for a viewer: it adds to a bounded history and puts a message into a bounded channel, and a viewer
//! who falls behind gets the history anew.

mod guard;
mod history;
mod patience;
mod secret;
mod series;
mod server;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tokio::sync::{broadcast, watch};

use self::guard::Guard;
use self::history::History;
use self::server::{MAX_BEHIND, PageState};
use super::record::{Event, Sink};
use crate::progress::Stop;
use crate::{Error, Result};

/// Where and to whom a page is served.
///
/// ```
/// use retape_train::monitor::{Monitor, Web};
///
/// let mut monitor = Monitor::new("run").web(Web::default().port(0))?; // any free port
/// let address = monitor.url().expect("there is a page"); // was printed, too
/// assert!(address.starts_with("http://127.0.0.1:") && address.contains("/?token="));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone)]
pub struct Web {
    address: IpAddr,
    port: u16,
    token: Option<String>,
    hosts: Vec<String>,
}

/// On the loopback interface (127.0.0.1), at a port that is free, with a token that is drawn.
impl Default for Web {
    fn default() -> Web {
        Web { address: Ipv4Addr::LOCALHOST.into(), port: 0, token: None, hosts: vec![] }
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Web { address, port, hosts, .. } = self;
        f.debug_struct("Web").field("address", address).field("port", port).field("hosts", hosts).finish()
    }
}

impl Web {
    /// Serves at this port; 0 is any that is free.
    pub fn port(mut self, port: u16) -> Web {
        self.port = port;
        self
    }

    /// Serves at this address of the machine, such as `0.0.0.0` for all: then other machines can see the page too.
    ///
    /// The page is not encrypted. A tunnel (`ssh -L`) to a page on the loopback interface is.
    pub fn address(mut self, address: impl Into<IpAddr>) -> Web {
        self.address = address.into();
        self
    }

    /// Asks for this token, at least 12 letters, digits, or characters of `-_.~`, instead of a drawn one.
    pub fn token(mut self, token: &str) -> Web {
        self.token = Some(token.to_owned());
        self
    }

    /// Answers to this name of the machine too, without a port. Otherwise a name other than `localhost` is refused, for a
    /// browser may have been made to believe that it is this machine's.
    pub fn host(mut self, name: &str) -> Web {
        self.hosts.push(name.to_ascii_lowercase());
        self
    }
}

/// A page on one run, served until it is dropped: a sink that works without a [`Monitor`](super::Monitor) too.
///
/// ```
/// use retape_train::monitor::{Event, Page, Sink, Web};
/// use retape_train::progress::Stop;
///
/// let stop = Stop::new(); // what the page's button asks for
/// let mut page = Page::serve("run", Web::default(), stop.clone())?;
/// page.take(&Event::Info { name: "device", value: "cpu" })?;
/// println!("{}", page.url());
/// # Ok::<(), retape_train::Error>(())
/// ```
pub struct Page {
    url: String,
    shared: Arc<PageState>,
    /// The server goes on while it is there.
    alive: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

impl Page {
    /// Serves a page on the run `name`, whose Stop button requests `stop`.
    ///
    /// # Errors
    ///
    /// Fails if the token is too short or not plain, the address is not the machine's, or the port is in use.
    #[track_caller]
    pub fn serve(name: &str, settings: Web, stop: Stop) -> Result<Page> {
        let token = settings.token.unwrap_or_else(secret::draw);
        secret::check(&token)?;
        let asked = SocketAddr::new(settings.address, settings.port);
        let network = |source| Error::Network { address: asked, source };
        let listener = TcpListener::bind(asked).map_err(network)?;
        listener.set_nonblocking(true).map_err(network)?;
        let bound = listener.local_addr().map_err(network)?;
        let url = format!("http://{}/?token={token}", SocketAddr::new(reachable(bound.ip()), bound.port()));
        let shared = Arc::new(PageState {
            guard: Guard { token, is_local: bound.ip().is_loopback(), hosts: settings.hosts },
            stop,
            history: Mutex::new(History::new(name)),
            messages: broadcast::Sender::new(MAX_BEHIND),
            n_viewers: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(network)?;
        let listener = {
            // A listener is registered with the runtime that it is made in.
            let _guard = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(network)?
        };
        let (alive, end) = watch::channel(());
        let serving = server::serve(listener, Arc::clone(&shared), end);
        let thread = thread::Builder::new().name("retape-page".to_owned());
        let thread = thread.spawn(move || runtime.block_on(serving)).map_err(network)?;
        Ok(Page { url, shared, alive: Some(alive), thread: Some(thread) })
    }

    /// The address of the page on this machine, token included.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// An address at which this machine reaches what is bound to `address`.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(all) if all.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(all) if all.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

impl Sink for Page {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        self.shared.tell_of_stop();
        let mut history = self.shared.history();
        if let Some(message) = history.take(event) {
            self.shared.send(&message);
        }
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Viewers are told in any case, then sent away. Neither can fail, nor the thread panic.
        let _ = self.take(&Event::Finish);
        let _ = self.shared.messages.send(None);
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
