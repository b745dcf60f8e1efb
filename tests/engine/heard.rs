//! A listener for the library's events, shared by tests: it keeps what it hears as data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// An event, or the beginning of a span.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) is_span: bool,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

/// The reaction of a listener when it hears something of this name.
type Reaction = Arc<dyn Fn(&'static str) + Send + Sync>;

/// Listens to the target `retape` where it is made the subscriber.
#[derive(Clone, Default)]
pub(crate) struct Listener {
    heard: Arc<Mutex<Vec<Heard>>>,
    reaction: Option<Reaction>,
}

struct Fields<'f>(&'f mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Hears nothing, and keeps `tracing` asking: an event that happens first on a thread where nobody listens, while
/// another thread begins to listen, would be taken for one that nobody ever wants.
struct Keeper;

static KEEPER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Keeper));

impl Subscriber for Keeper {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Listener {
    /// Listens on this thread until the guard goes.
    pub(crate) fn here() -> (Listener, tracing::subscriber::DefaultGuard) {
        let listener = Listener::default();
        (listener.clone(), listener.listen())
    }

    fn listen(self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&KEEPER);
        let guard = tracing::subscriber::set_default(self);
        tracing::callsite::rebuild_interest_cache();
        guard
    }

    /// Listens on this thread until the guard goes, and reacts to each event and span.
    pub(crate) fn reacting(
        reaction: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> (Listener, tracing::subscriber::DefaultGuard) {
        let listener = Listener { reaction: Some(Arc::new(reaction)), ..Listener::default() };
        (listener.clone(), listener.listen())
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// One line per event in the life of an entry, such as `miss (f32[4])`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |heard: &Heard| {
            let name = heard.name.strip_prefix("retape::").filter(|_| !heard.is_span)?;
            match (name, heard.fields.get("arguments")) {
                ("hit" | "miss" | "wait" | "evict", Some(arguments)) => Some(format!("{name:<4} ({arguments})")),
                ("clear", _) => Some(name.to_owned()),
                _ => None,
            }
        };
        self.heard().iter().filter_map(line).collect()
    }

    fn note(&self, metadata: &Metadata<'static>, is_span: bool, record: impl FnOnce(&mut Fields<'_>)) {
        let mut fields = BTreeMap::new();
        record(&mut Fields(&mut fields));
        let heard = Heard { name: metadata.name(), level: *metadata.level(), is_span, fields };
        self.heard.lock().unwrap().push(heard);
        if let Some(reaction) = &self.reaction {
            reaction(metadata.name());
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "retape"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata(), true, |fields| span.record(fields));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata(), false, |fields| event.record(fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
