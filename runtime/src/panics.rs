//! Messages of panics that were caught.

use std::any::Any;

/// The message of a panic that was caught.
#[cold]
pub fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    if text.is_none() {
        // Dropping what somebody threw may panic again, here where nobody would catch it.
        std::mem::forget(payload);
    }
    text.unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use super::*;

    #[test]
    fn messages_are_those_of_the_panics() {
        let thrown = |body: fn()| catch_unwind(body).expect_err("it panics");
        assert_eq!(panic_message(thrown(|| panic!("as it stands"))), "as it stands");
        assert_eq!(panic_message(thrown(|| panic!("number {}", 3))), "number 3");
        assert_eq!(panic_message(thrown(|| panic_any(3))), "no message");
    }

    #[test]
    fn a_payload_whose_end_panics_is_not_ended() {
        struct Grenade;
        impl Drop for Grenade {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let thrown = catch_unwind(|| panic_any(Grenade)).expect_err("it panics");
        assert_eq!(panic_message(thrown), "no message");
    }
}
