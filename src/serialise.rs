//! The forms that fields have as data for `serde`: times are seconds, and lines, aspects and numbers of any dtype texts.

use std::fmt::Display;
use std::time::Duration;

use retape_runtime::Budget;
use serde::{Serialize, Serializer};

pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(crate) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn text_if_any<S: Serializer>(value: &Option<impl Display>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

pub(crate) fn budget<S: Serializer>(budget: &Budget, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(remote = "Budget")]
    struct Fields {
        host: Option<usize>,
        device: Option<usize>,
    }

    Fields::serialize(budget, serializer)
}
