//! Element types whose bytes may be anything.

use retape_runtime::Element;

/// Element types of which every bit pattern is a value. `bool` is none and is viewed as `u8`.
pub(crate) trait Plain: Element {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for retape_runtime::f16 {}
impl Plain for retape_runtime::bf16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for u32 {}
impl Plain for u8 {}
