//! The run so far, in bounded memory, for viewers who come late; and the messages for those who are there.

use std::collections::VecDeque;

use serde::Serialize;

use super::series::Series;
use crate::json::Number;
use crate::monitor::record::{CacheReport, Event, Phase, Record, now};

/// How many curves, info fields, functions and notes are kept. Of notes the last ones stay, of everything else the first.
const MAX_CURVES: usize = 128;
const MAX_INFO: usize = 128;
const MAX_CACHES: usize = 16;
const MAX_NOTES: usize = 100;

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Running,
    /// A stop was asked for.
    Stopping,
    Finished,
}

/// A curve: the value of a scalar at each step.
#[derive(Clone, Debug, Serialize)]
struct Curve {
    phase: Phase,
    name: String,
    last: Number,
    #[serde(flatten)]
    series: Series,
}

/// The cache of a function, and its hit rate and misses at each step that it was told at.
#[derive(Clone, Debug, Serialize)]
struct Cache {
    report: CacheReport,
    hit_rate: Series,
    misses: Series,
}

#[derive(Clone, Debug, Serialize)]
struct Note {
    time: f64,
    step: u64,
    text: String,
}

/// A run so far.
#[derive(Clone, Debug, Serialize)]
pub(super) struct History {
    name: String,
    started: f64,
    status: Status,
    time: f64,
    step: u64,
    epoch: u64,
    n_steps: Option<u64>,
    info: Vec<(String, String)>,
    curves: Vec<Curve>,
    caches: Vec<Cache>,
    notes: VecDeque<Note>,
}

/// A message to viewers; the name of its variant is in the field `kind`.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Message<'a> {
    History { history: &'a History },
    Record { phase: Phase, time: f64, step: u64, epoch: u64, scalars: Vec<(&'a str, Number)> },
    Info { name: &'a str, value: &'a str },
    Cache { report: &'a CacheReport },
    Note { time: f64, step: u64, text: &'a str },
    Steps { n_steps: u64 },
    Status { status: Status },
}

impl Message<'_> {
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("a message is plain data with names as keys")
    }
}

impl History {
    pub(super) fn new(name: &str) -> History {
        let started = now();
        History {
            name: name.to_owned(),
            started,
            status: Status::Running,
            time: started,
            step: 0,
            epoch: 0,
            n_steps: None,
            info: vec![],
            curves: vec![],
            caches: vec![],
            notes: VecDeque::new(),
        }
    }

    /// Changes the status; whether it was another one. A run that has finished stays so.
    pub(super) fn set_status(&mut self, status: Status) -> bool {
        let is_news = self.status != status && self.status != Status::Finished;
        if is_news {
            self.status = status;
        }
        is_news
    }

    /// Takes an event in, and gives the message that viewers should hear of it.
    pub(super) fn take<'a>(&mut self, event: &Event<'a>) -> Option<Message<'a>> {
        match *event {
            Event::Record(record) => Some(self.record(record)),
            Event::Info { name, value } => self.info(name, value),
            Event::Cache(report) => self.cache(report),
            Event::Note(text) => {
                let note = Note { time: now(), step: self.step, text: text.to_owned() };
                let message = Message::Note { time: note.time, step: note.step, text };
                if self.notes.len() == MAX_NOTES {
                    self.notes.pop_front();
                }
                self.notes.push_back(note);
                Some(message)
            }
            Event::Steps(n_steps) => {
                self.n_steps = Some(n_steps);
                Some(Message::Steps { n_steps })
            }
            Event::Finish => {
                let is_news = self.set_status(Status::Finished);
                is_news.then_some(Message::Status { status: Status::Finished })
            }
        }
    }

    fn record<'a>(&mut self, record: &'a Record) -> Message<'a> {
        let &Record { time, phase, step, epoch, .. } = record;
        (self.time, self.step, self.epoch) = (time, step, epoch);
        let mut scalars = vec![];
        for (name, value) in &record.scalars {
            let known = self.curves.iter().position(|curve| curve.phase == phase && curve.name == *name);
            let known = known.or_else(|| {
                let curve = Curve { phase, name: name.clone(), last: Number(*value), series: Series::new() };
                let has_room = self.curves.len() < MAX_CURVES;
                has_room.then(|| self.curves.push(curve)).map(|()| self.curves.len() - 1)
            });
            if let Some(curve) = known.and_then(|known| self.curves.get_mut(known)) {
                curve.last = Number(*value);
                curve.series.push(step, *value);
                scalars.push((name.as_str(), Number(*value)));
            }
        }
        Message::Record { phase, time, step, epoch, scalars }
    }

    fn info<'a>(&mut self, name: &'a str, value: &'a str) -> Option<Message<'a>> {
        match self.info.iter().position(|(known, _)| known == name) {
            Some(known) => value.clone_into(&mut self.info[known].1),
            None if self.info.len() == MAX_INFO => return None,
            None => self.info.push((name.to_owned(), value.to_owned())),
        }
        Some(Message::Info { name, value })
    }

    fn cache<'a>(&mut self, report: &'a CacheReport) -> Option<Message<'a>> {
        let known = self.caches.iter().position(|cache| cache.report.name == report.name);
        let known = match known {
            Some(known) => known,
            None if self.caches.len() == MAX_CACHES => return None,
            None => {
                self.caches.push(Cache { report: report.clone(), hit_rate: Series::new(), misses: Series::new() });
                self.caches.len() - 1
            }
        };
        let cache = &mut self.caches[known];
        cache.report.clone_from(report);
        cache.hit_rate.push(report.step, report.hit_rate);
        cache.misses.push(report.step, report.misses as f64);
        Some(Message::Cache { report })
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::MAX_BINS;
    use super::*;

    #[test]
    fn a_long_run_with_many_names_stays_small() {
        let mut history = History::new("long");
        let size = |history: &History| Message::History { history }.json().len();
        let mut sizes = vec![];
        for step in 1..=20_000_u64 {
            let name = format!("scalar {}", step % 1000);
            let record = Record::now(Phase::Training, step, 0, None, &[("loss", 1.0 / step as f64), (&name, 0.5)]);
            history.take(&Event::Record(&record));
            history.take(&Event::Note(&format!("note {step}")));
            history.take(&Event::Info { name: &name, value: "x" });
            if step % 10_000 == 0 {
                sizes.push(size(&history));
            }
        }
        assert_eq!((history.curves.len(), history.info.len(), history.notes.len()), (MAX_CURVES, MAX_INFO, MAX_NOTES));
        assert_eq!(history.notes[0].text, "note 19901");
        assert!(sizes[1] < MAX_CURVES * MAX_BINS * 200 && sizes[1] < 2 * sizes[0], "{sizes:?}");
    }
}
