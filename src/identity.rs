//! The names of accelerated functions.

use std::fmt;
use std::sync::{Arc, RwLock};

use retape_runtime::{lock_to_read, lock_to_write};

use crate::error::Caller;

/// The name of a function and the line that accelerated it; all that speaks of the function shares it.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Arc<Details>);

#[derive(Debug)]
struct Details {
    name: RwLock<Arc<str>>,
    made_at: Caller,
}

impl Identity {
    /// The identity of a function of a Rust type that was accelerated at a line.
    pub(crate) fn new(type_name: &str, made_at: Caller) -> Identity {
        let name = declared_name(type_name).map_or_else(|| made_at.to_string().into(), Arc::from);
        Identity(Arc::new(Details { name: RwLock::new(name), made_at }))
    }

    /// The name that was given, or the one that the function has by itself.
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&lock_to_read(&self.0.name))
    }

    /// Gives another name, which is one line; an empty one changes nothing.
    pub(crate) fn set_name(&self, name: &str) {
        let name = name.split(char::is_control).collect::<Vec<_>>().join(" ");
        if name.trim().is_empty() {
            return;
        }
        *lock_to_write(&self.0.name) = name.trim().into();
    }

    /// The line that accelerated the function.
    pub(crate) fn made_at(&self) -> Caller {
        self.0.made_at
    }

    /// The name, if it has one of its own, and the line that accelerated it, within a sentence.
    pub(crate) fn full(&self) -> String {
        let (name, made_at) = (self.name(), self.made_at().to_string());
        if *name == *made_at {
            format!("the function accelerated at {made_at}")
        } else {
            format!("`{name}` (accelerated at {made_at})")
        }
    }
}

/// The name, as code.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name())
    }
}

/// The name that a function was declared with; none for closures, pointers and boxes.
fn declared_name(type_name: &str) -> Option<&str> {
    let is_word = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let path = type_name.trim_start_matches('&');
    if path.split("::").all(is_word) { path.rsplit("::").next() } else { None }
}

#[cfg(test)]
mod tests {
    use std::any::type_name_of_val;
    use std::panic::Location;

    use super::*;

    fn train_step(x: &u32) -> u32 {
        *x
    }

    #[test]
    fn functions_have_the_name_of_their_declaration_and_closures_a_line() {
        let at = Location::caller();
        let name = |type_name: &str| Identity::new(type_name, at).name().to_string();
        assert_eq!(name(type_name_of_val(&train_step)), "train_step");
        assert_eq!(name(type_name_of_val(&&train_step)), "train_step");
        let pointer: fn(&u32) -> u32 = train_step;
        let boxed: Box<dyn Fn(&u32) -> u32> = Box::new(train_step);
        let others = [type_name_of_val(&|x: &u32| *x), type_name_of_val(&pointer), type_name_of_val(&boxed)];
        for other in others {
            assert_eq!(name(other), at.to_string(), "{other}");
        }
    }

    #[test]
    fn a_new_name_is_known_to_all() {
        let identity = Identity::new("{{closure}}", Location::caller());
        let other = identity.clone();
        identity.set_name("evaluate");
        assert_eq!((&*other.name(), other.to_string().as_str()), ("evaluate", "`evaluate`"));
        for (given, kept) in [("", "evaluate"), (" \n", "evaluate"), ("two\nlines\t", "two lines"), ("µ `x`", "µ `x`")]
        {
            identity.set_name(given);
            assert_eq!(&*other.name(), kept, "{given:?}");
        }
    }
}
