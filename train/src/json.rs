//! Numbers as JSON, which has no NaN and no infinities.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number as JSON; NaN and infinities are texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(Number(value)),
            Written::Text(text) => match text.parse() {
                Ok(value) if ["NaN", "inf", "-inf"].contains(&text.as_str()) => Ok(Number(value)),
                _ => Err(de::Error::custom(format!("{text:?} is no number"))),
            },
        }
    }
}
