//! The places of panics, which those who catch a panic are not told.
//!
//! Only the panic hook of the process learns where a panic begins. The one that is set here notes that for its thread
//! and goes on with the hook that was there before, so all that is printed is printed as ever.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;
use std::thread::panicking;

/// The message of a panic whose payload is no text.
const NO_MESSAGE: &str = "no message";

/// The message of a panic, and its file, line and column.
struct Noted {
    message: String,
    place: String,
}

thread_local! {
    /// The last panic that began on this thread.
    static LAST: RefCell<Option<Noted>> = const { RefCell::new(None) };
}

/// From now on notes where panics begin. A hook that the program sets later takes its place, unless it calls the one
/// before; then no places are known, and nothing else changes.
pub fn note_panics() {
    static HOOK: Once = Once::new();
    // A thread that panics may not set the hook; a later call will.
    if HOOK.is_completed() || panicking() {
        return;
    }
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if let Some(place) = info.location() {
                note(info.payload_as_str().unwrap_or(NO_MESSAGE).to_owned(), place.to_string());
            }
            before(info);
        }));
    });
}

/// The text that a panic was given, if it was given one.
fn text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// The message of a panic that was caught.
#[cold]
pub fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let message = text(&*payload).map(str::to_owned);
    if message.is_none() {
        // Dropping what somebody threw may panic again, here where nobody would catch it.
        std::mem::forget(payload);
    }
    message.unwrap_or_else(|| NO_MESSAGE.to_owned())
}

fn note(message: String, place: String) {
    // Neither at the end of the thread, nor from a panic in here, which nothing above can cause.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = Some(Noted { message, place });
        }
    });
}

/// The file, line and column of the panic that was caught last on this thread, if its message is this one. A panic that
/// is thrown on by another thread is not confused with an older one of this thread, whose message is another.
#[cold]
pub fn place_of_panic(message: &str) -> Option<String> {
    let noted = LAST.try_with(|last| last.try_borrow_mut().ok()?.take()).ok()??;
    (noted.message == message).then_some(noted.place)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

    use super::*;

    #[test]
    fn the_place_of_the_last_panic_is_known_once() {
        note_panics();
        let line = line!() + 1;
        assert!(catch_unwind(|| panic!("number {}", 3)).is_err());
        let place = place_of_panic("number 3").expect("the hook has noted it");
        assert!(place.starts_with(&format!("{}:{line}:", file!())), "{place}");
        assert_eq!(place_of_panic("number 3"), None);
    }

    #[test]
    fn a_panic_of_another_thread_has_no_place_here() {
        note_panics();
        assert!(catch_unwind(|| panic!("an old one")).is_err());
        let thrown = std::thread::spawn(|| panic!("elsewhere")).join().expect_err("it panics");
        assert!(catch_unwind(AssertUnwindSafe(|| resume_unwind(thrown))).is_err());
        assert_eq!(place_of_panic("elsewhere"), None);
    }

    #[test]
    fn a_payload_that_is_no_text_has_a_place() {
        note_panics();
        assert!(catch_unwind(|| panic_any(3)).is_err());
        assert!(place_of_panic("no message").is_some_and(|place| place.starts_with(file!())));
    }
}
