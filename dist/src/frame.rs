//! The head of a message: the sender, its call, and the first bytes of the payload.
//!
//! Most messages are short and fit into their head. Of long ones the rest follows when the heads of all workers agree.

/// The largest frame. Libraries of MPI send messages of this length without asking the receiver first.
pub(crate) const FRAME: usize = 4000;

/// Longer texts of calls are cut in the frame, and compared by digest.
const TEXT: usize = 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"retape/1");
const FIXED: usize = 64;

/// Whether a worker is in a call, or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `text` is the call.
    Call,
    /// `text` is the error: no more frames follow.
    Failed,
}

/// A call of all workers, as far as it is the same for all.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) digest: u128,
    pub(crate) text: String,
}

impl Call {
    pub(crate) fn new(number: u64, text: &str) -> Call {
        Call { number, digest: digest(text.as_bytes()), text: cut(text, TEXT).to_owned() }
    }

    pub(crate) fn is(&self, other: &Call) -> bool {
        self.number == other.number && self.digest == other.digest && self.text == other.text
    }
}

/// A frame that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) call: Call,
    /// The bytes that the sender sends to the receiver in all.
    pub(crate) sent: u64,
    /// The bytes that the sender wants from the receiver.
    pub(crate) wanted: u64,
    /// The first of the bytes that are sent.
    pub(crate) payload: Vec<u8>,
}

/// How many of the first bytes of a message travel in its head.
pub(crate) fn in_head(call: &Call, len: usize) -> usize {
    len.min(FRAME - FIXED - call.text.len())
}

/// The frame of a call, with the first bytes of what is sent.
pub(crate) fn call(call: &Call, sent: &[u8], wanted: usize) -> Vec<u8> {
    encode(Kind::Call, call, sent, wanted)
}

/// The frame of a worker that has failed in an exchange, or before it.
pub(crate) fn failed(number: u64, message: &str) -> Vec<u8> {
    let text = cut(message, FRAME - FIXED).to_owned();
    encode(Kind::Failed, &Call { number, digest: 0, text }, &[], 0)
}

fn encode(kind: Kind, call: &Call, sent: &[u8], wanted: usize) -> Vec<u8> {
    let payload = &sent[..in_head(call, sent.len())];
    let mut frame = Vec::with_capacity(FIXED + call.text.len() + payload.len());
    let kind = u64::from(kind == Kind::Failed);
    for word in [MAGIC, kind, call.number, sent.len() as u64, wanted as u64, call.text.len() as u64] {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame.extend_from_slice(&call.digest.to_le_bytes());
    frame.extend_from_slice(call.text.as_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Reads a frame, of which the buffer may be longer.
pub(crate) fn decode(bytes: &[u8]) -> Option<Frame> {
    let (words, rest) = bytes.split_at_checked(FIXED)?;
    let word = |n: usize| words[n * 8..].first_chunk().copied().map(u64::from_le_bytes);
    if word(0)? != MAGIC {
        return None;
    }
    let kind = if word(1)? == 0 { Kind::Call } else { Kind::Failed };
    let digest = u128::from_le_bytes(words[48..].first_chunk().copied()?);
    let (text, rest) = rest.split_at_checked(word(5)?.try_into().ok()?)?;
    let call = Call { number: word(2)?, digest, text: String::from_utf8(text.to_vec()).ok()? };
    let sent = word(3)?;
    let payload = rest.get(..in_head(&call, sent.try_into().ok()?))?.to_vec();
    Some(Frame { kind, call, sent, wanted: word(4)?, payload })
}

/// The start of a text, of at most so many bytes.
fn cut(text: &str, len: usize) -> &str {
    &text[..text.floor_char_boundary(len)]
}

/// FNV-1a of 128 bits: it guards against accidents, and nobody makes two calls collide.
fn digest(bytes: &[u8]) -> u128 {
    let step =
        |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
}
