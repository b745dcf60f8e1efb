//! JSON that may stand inside a page: values and their text.

use std::fmt;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// A number; one that is not finite becomes `null`.
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(&'static str, Json)>),
}

impl Json {
    /// A list of what `items` become.
    pub(crate) fn list<T: Into<Json>>(items: impl IntoIterator<Item = T>) -> Json {
        Json::List(items.into_iter().map(Into::into).collect())
    }

    /// The text that a value displays as.
    pub(crate) fn text(value: impl fmt::Display) -> Json {
        Json::Text(value.to_string())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Json {
        Json::Number(value)
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Json {
        Json::Number(value as f64)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::Number(value as f64)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Json {
        Json::Number(value.into())
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Json {
        Json::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Json {
        Json::Text(value)
    }
}

/// Seconds.
impl From<std::time::Duration> for Json {
    fn from(value: std::time::Duration) -> Json {
        Json::Number(value.as_secs_f64())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

/// Compact JSON. Text holds none of `<`, `>` and `&`, so that it cannot end a script element or begin another.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(value) if value.is_finite() => write!(f, "{value}"),
            Json::Number(_) => f.write_str("null"),
            Json::Text(text) => write_text(f, text),
            Json::List(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if n > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Map(fields) => {
                f.write_str("{")?;
                for (n, (name, value)) in fields.iter().enumerate() {
                    f.write_str(if n > 0 { "," } else { "" })?;
                    write_text(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{0}'..='\u{1f}' | '\u{7f}' => {
                write!(f, "\\u{:04x}", c as u32)?
            }
            _ => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_cannot_leave_its_element() {
        let cases = [
            ("plain", r#""plain""#),
            ("a \"quoted\" \\ path", r#""a \"quoted\" \\ path""#),
            ("</script><script>", r#""\u003c/script\u003e\u003cscript\u003e""#),
            ("&lt;", r#""\u0026lt;""#),
            ("\u{0}\n\t\u{7f}", "\"\\u0000\\u000a\\u0009\\u007f\""),
            ("µ → \u{2028}", "\"µ → \\u2028\""),
        ];
        for (text, expected) in cases {
            assert_eq!(Json::from(text).to_string(), expected);
        }
    }

    #[test]
    fn values_nest() {
        let value = Json::Map(vec![
            ("numbers", Json::list([0.5, -2.0, 1e-3])),
            ("none", Json::list([f64::NAN, f64::INFINITY])),
            ("yes", true.into()),
            ("nothing", Json::from(None::<u64>)),
            ("nested", Json::List(vec![Json::Map(vec![]), Json::List(vec![])])),
        ]);
        let expected =
            "{\"numbers\":[0.5,-2,0.001],\"none\":[null,null],\"yes\":true,\"nothing\":null,\"nested\":[{},[]]}";
        assert_eq!(value.to_string(), expected);
    }
}
