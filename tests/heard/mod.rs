//! A listener for the library's events, shared by tests: it keeps what it hears as data.

#![allow(dead_code, reason = "not every test that includes this looks at everything")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// An event, or the beginning of a span.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) is_span: bool,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

/// What a listener does when it hears something of this name.
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

impl Listener {
    /// Listens on this thread until the guard goes.
    pub(crate) fn here() -> (Listener, tracing::subscriber::DefaultGuard) {
        let listener = Listener::default();
        (listener.clone(), tracing::subscriber::set_default(listener))
    }

    /// Listens on this thread until the guard goes, and reacts to each event and span.
    pub(crate) fn reacting(
        reaction: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> (Listener, tracing::subscriber::DefaultGuard) {
        let listener = Listener { reaction: Some(Arc::new(reaction)), ..Listener::default() };
        (listener.clone(), tracing::subscriber::set_default(listener))
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
