//! The rows of the opcode tables that the wide emitter uses.
//!
//! A function of `wide` stands for two rows: elements of 64 bits, or of 32.

/// An instruction as its encodings have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    /// 1: 0F, 2: 0F38, 3: 0F3A.
    pub(super) map: u8,
    /// 0: none, 1: 66, 2: F3, 3: F2.
    pub(super) prefix: u8,
    pub(super) opcode: u8,
    /// W of EVEX, which tells elements of 64 bits from those of 32.
    pub(super) wide: bool,
    /// Whether VEX has the same W; it has none otherwise.
    pub(super) vex_wide: bool,
    /// Whether an operand in memory is a whole vector.
    pub(super) is_full: bool,
    /// Whether EVEX can repeat one element from memory.
    pub(super) repeats: bool,
    /// Whether an operand may lie in memory.
    pub(super) in_memory: bool,
    mask: bool,
}

const NONE: u8 = 0;
const P66: u8 = 1;
const PF3: u8 = 2;
const PF2: u8 = 3;

impl Op {
    const fn new(map: u8, prefix: u8, opcode: u8) -> Op {
        Op {
            map,
            prefix,
            opcode,
            wide: false,
            vex_wide: false,
            is_full: true,
            repeats: true,
            in_memory: true,
            mask: false,
        }
    }

    const fn wide(self, wide: bool) -> Op {
        Op { wide, ..self }
    }

    /// With W in both encodings.
    const fn both_wide(self, wide: bool) -> Op {
        Op { wide, vex_wide: wide, ..self }
    }

    /// An operand in memory is no whole vector.
    const fn part(self) -> Op {
        Op { is_full: false, repeats: false, ..self }
    }

    /// A whole vector in memory, none of whose elements can be repeated.
    const fn whole(self) -> Op {
        Op { repeats: false, ..self }
    }

    const fn of_masks(self) -> Op {
        Op { mask: true, repeats: false, in_memory: false, ..self }
    }

    /// All operands are registers.
    const fn of_registers(self) -> Op {
        Op { in_memory: false, ..self }
    }

    /// Whether it works on mask registers, and so is encoded by VEX always.
    pub(super) const fn is_mask(self) -> bool {
        self.mask
    }
}

/// Arithmetic on floats, whose prefix tells the sizes apart.
const fn float(opcode: u8, wide: bool) -> Op {
    Op::new(1, wide as u8, opcode).wide(wide)
}

pub(super) const fn add_float(wide: bool) -> Op {
    float(0x58, wide)
}
pub(super) const fn sub_float(wide: bool) -> Op {
    float(0x5c, wide)
}
pub(super) const fn mul_float(wide: bool) -> Op {
    float(0x59, wide)
}
pub(super) const fn div_float(wide: bool) -> Op {
    float(0x5e, wide)
}
/// `v < rm ? v : rm`.
pub(super) const fn min_float(wide: bool) -> Op {
    float(0x5d, wide)
}
/// `v > rm ? v : rm`.
pub(super) const fn max_float(wide: bool) -> Op {
    float(0x5f, wide)
}
pub(super) const fn sqrt(wide: bool) -> Op {
    float(0x51, wide)
}
/// Compares as the immediate says; to a mask register with EVEX.
pub(super) const fn compare_float(wide: bool) -> Op {
    float(0xc2, wide)
}
pub(super) const fn round(wide: bool) -> Op {
    Op::new(3, P66, 0x08 | wide as u8).wide(wide)
}
/// `reg = reg * rm + v`.
pub(super) const fn fma132(wide: bool) -> Op {
    Op::new(2, P66, 0x98).both_wide(wide)
}
/// `reg = v * reg + rm`.
pub(super) const fn fma213(wide: bool) -> Op {
    Op::new(2, P66, 0xa8).both_wide(wide)
}
/// `reg = v * rm + reg`.
pub(super) const fn fma231(wide: bool) -> Op {
    Op::new(2, P66, 0xb8).both_wide(wide)
}

pub(super) const fn and(wide: bool) -> Op {
    Op::new(1, P66, 0xdb).wide(wide)
}
pub(super) const fn or(wide: bool) -> Op {
    Op::new(1, P66, 0xeb).wide(wide)
}
pub(super) const fn xor(wide: bool) -> Op {
    Op::new(1, P66, 0xef).wide(wide)
}
/// `!v & rm`.
pub(super) const fn and_not(wide: bool) -> Op {
    Op::new(1, P66, 0xdf).wide(wide)
}

pub(super) const fn add_int(wide: bool) -> Op {
    Op::new(1, P66, if wide { 0xd4 } else { 0xfe }).wide(wide)
}
pub(super) const fn sub_int(wide: bool) -> Op {
    Op::new(1, P66, if wide { 0xfb } else { 0xfa }).wide(wide)
}
/// The low halves of products; of 64 bits with EVEX only.
pub(super) const fn mul_low(wide: bool) -> Op {
    Op::new(2, P66, 0x40).wide(wide)
}
/// Full products of the low halves of elements of 64 bits.
pub(super) const MUL_EVEN: Op = Op::new(1, P66, 0xf4).wide(true);
/// Signed minimum, of 64 bits with EVEX only; likewise below.
pub(super) const fn min_signed(wide: bool) -> Op {
    Op::new(2, P66, 0x39).wide(wide)
}
pub(super) const fn max_signed(wide: bool) -> Op {
    Op::new(2, P66, 0x3d).wide(wide)
}
pub(super) const MIN_UNSIGNED: Op = Op::new(2, P66, 0x3b);
pub(super) const MAX_UNSIGNED: Op = Op::new(2, P66, 0x3f);
/// Absolute value, of 64 bits with EVEX only.
pub(super) const fn abs_int(wide: bool) -> Op {
    Op::new(2, P66, 0x1e | wide as u8).wide(wide)
}
pub(super) const fn equal_int(wide: bool) -> Op {
    Op::new(if wide { 2 } else { 1 }, P66, if wide { 0x29 } else { 0x76 }).wide(wide)
}
pub(super) const fn greater_int(wide: bool) -> Op {
    Op::new(if wide { 2 } else { 1 }, P66, if wide { 0x37 } else { 0x66 }).wide(wide)
}
/// Compares signed integers as the immediate says, to a mask register; EVEX only.
pub(super) const fn compare_signed(wide: bool) -> Op {
    Op::new(3, P66, 0x1f).wide(wide)
}
pub(super) const fn compare_unsigned(wide: bool) -> Op {
    Op::new(3, P66, 0x1e).wide(wide)
}

/// Shifts by an immediate: the opcode and the digit that stands for `reg`. Arithmetic ones of 64 bits with EVEX only.
pub(super) const fn shift_imm(shift: Shift, wide: bool) -> (Op, u8) {
    let (opcode, digit) = match (shift, wide) {
        (Shift::Left, false) => (0x72, 6),
        (Shift::Left, true) => (0x73, 6),
        (Shift::Right, false) => (0x72, 2),
        (Shift::Right, true) => (0x73, 2),
        (Shift::Arithmetic, _) => (0x72, 4),
    };
    (Op::new(1, P66, opcode).wide(wide).of_registers(), digit)
}

/// Shifts by the lanes of another vector.
pub(super) const fn shift_by(shift: Shift, wide: bool) -> Op {
    let opcode = match shift {
        Shift::Left => 0x47,
        Shift::Right => 0x45,
        Shift::Arithmetic => 0x46,
    };
    Op::new(2, P66, opcode).both_wide(wide)
}

/// A direction of shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Left,
    Right,
    Arithmetic,
}

/// Of `rm` where the mask of EVEX is set, else of `v`.
pub(super) const fn blend_masked(wide: bool) -> Op {
    Op::new(2, P66, 0x64).wide(wide)
}
/// Of `rm` where the fourth register is negative, else of `v`; VEX only.
pub(super) const fn blend_variable(wide: bool) -> Op {
    Op::new(3, P66, 0x4a | wide as u8)
}

/// A vector from registers or memory to a register.
pub(super) const MOVE: Op = Op::new(1, NONE, 0x10).whole();
/// A vector to memory.
pub(super) const STORE: Op = Op::new(1, NONE, 0x11).whole();
/// A vector to memory past the caches, on a boundary of vectors.
pub(super) const STREAM: Op = Op::new(1, NONE, 0x2b).whole();
/// A vector of 64-bit elements, which masks count.
pub(super) const fn move_elements(wide: bool) -> Op {
    float(0x10, wide).whole()
}
pub(super) const fn store_elements(wide: bool) -> Op {
    float(0x11, wide).whole()
}
/// A load or store of the lanes whose mask, in `v`, is negative; VEX only.
pub(super) const fn load_masked(wide: bool) -> Op {
    Op::new(2, P66, 0x8c).both_wide(wide).whole()
}
pub(super) const fn store_masked(wide: bool) -> Op {
    Op::new(2, P66, 0x8e).both_wide(wide).whole()
}
/// Bytes, which masks count; EVEX only.
pub(super) const LOAD_BYTES: Op = Op::new(1, PF2, 0x6f).whole();
pub(super) const STORE_BYTES: Op = Op::new(1, PF2, 0x7f).whole();

/// One element from memory or a register in all lanes.
pub(super) const fn repeat(wide: bool) -> Op {
    Op::new(2, P66, 0x58 | wide as u8).wide(wide).part()
}
/// A general register in all lanes; EVEX only.
pub(super) const fn repeat_general(wide: bool) -> Op {
    Op::new(2, P66, 0x7c).wide(wide).part()
}
/// A general register, or 32 or 64 bits of memory, to the lowest lane, and back.
pub(super) const fn move_to_lane(wide: bool) -> Op {
    Op::new(1, P66, 0x6e).both_wide(wide).part()
}
pub(super) const fn move_from_lane(wide: bool) -> Op {
    Op::new(1, P66, 0x7e).both_wide(wide).part()
}

/// One element from memory to the lowest lane, others cleared.
pub(super) const fn load_lane(wide: bool) -> Op {
    Op::new(1, if wide { PF2 } else { PF3 }, 0x10).wide(wide).part()
}
/// `v` with a word from memory in the lane that the immediate says.
pub(super) const INSERT_WORD: Op = Op::new(3, P66, 0x21).part();
/// `v` with a general register, or as many bits of memory, in the lane of 32 bits that the immediate says.
pub(super) const INSERT_GENERAL: Op = Op::new(3, P66, 0x22).part();
/// `v` with 16 or 8 bits of memory in the lane that the immediate says; VEX only.
pub(super) const INSERT_HALF: Op = Op::new(1, P66, 0xc4).part();
pub(super) const INSERT_BYTE: Op = Op::new(3, P66, 0x20).part();
/// The lane of 32, 16 or 8 bits of `reg` that the immediate says to memory; VEX only.
pub(super) const EXTRACT_LANE: Op = Op::new(3, P66, 0x16).part();
pub(super) const EXTRACT_HALF: Op = Op::new(3, P66, 0x15).part();
pub(super) const EXTRACT_BYTE: Op = Op::new(3, P66, 0x14).part();
/// `v` with 64 bits from memory in the upper lane of 128 bits.
pub(super) const INSERT_HIGH: Op = Op::new(1, P66, 0x16).wide(true).part();

/// 128 bits of `reg` to `rm`; the immediate counts.
pub(super) const EXTRACT_128: Op = Op::new(3, P66, 0x39).part();
/// 256 bits of `reg` to `rm`; EVEX only.
pub(super) const EXTRACT_256: Op = Op::new(3, P66, 0x3b).part();
/// `v` with 128 bits of `rm` above.
pub(super) const INSERT_128: Op = Op::new(3, P66, 0x38).part();
/// `v` with 256 bits of `rm` above; EVEX only.
pub(super) const INSERT_256: Op = Op::new(3, P66, 0x3a).part();
/// Words of 32 bits within each 128, as the immediate says.
pub(super) const SHUFFLE: Op = Op::new(1, P66, 0x70);
/// Two words of `v`, then two of `rm`, within each 128 bits.
pub(super) const SHUFFLE_TWO: Op = Op::new(1, NONE, 0xc6);
/// A 64-bit element of `v`, then one of `rm`, within each 128 bits.
pub(super) const SHUFFLE_TWO_QUADS: Op = Op::new(1, P66, 0xc6).wide(true);
/// 64-bit elements within each 256 bits, as the immediate says.
pub(super) const PERMUTE_QUADS: Op = Op::new(3, P66, 0x00).both_wide(true);
/// The elements of `rm` that the lanes of `v` name; of 64 bits, EVEX only.
pub(super) const fn permute_by(wide: bool) -> Op {
    Op::new(2, P66, 0x36).wide(wide)
}
/// The elements of `v`, then of `rm`, that the lanes of `reg` name, which they replace; EVEX only.
pub(super) const PERMUTE_TWO: Op = Op::new(2, P66, 0x76);
/// Words of `rm` where the immediate has a bit, else of `v`; VEX only.
pub(super) const BLEND_WORDS: Op = Op::new(3, P66, 0x02);
pub(super) const PACK_WORDS_UNSIGNED: Op = Op::new(2, P66, 0x2b);
pub(super) const PACK_BYTES_UNSIGNED: Op = Op::new(1, P66, 0x67).whole();

/// Zero-extended bytes, halves and words, and sign-extended words.
pub(super) const BYTES_TO_WORDS: Op = Op::new(2, P66, 0x31).part();
pub(super) const HALVES_TO_WORDS: Op = Op::new(2, P66, 0x33).part();
pub(super) const WORDS_TO_QUADS: Op = Op::new(2, P66, 0x35).part();
pub(super) const WORDS_TO_QUADS_SIGNED: Op = Op::new(2, P66, 0x25).part();
/// The low bytes, halves or words of the elements of `reg` to `rm`; EVEX only.
pub(super) const NARROW_BYTES: Op = Op::new(2, PF3, 0x31).part();
pub(super) const NARROW_HALVES: Op = Op::new(2, PF3, 0x33).part();
pub(super) const NARROW_WORDS: Op = Op::new(2, PF3, 0x35).part();

/// Conversions between `f32` and 32-bit integers.
pub(super) const INT_TO_FLOAT: Op = Op::new(1, NONE, 0x5b);
pub(super) const FLOAT_TO_INT: Op = Op::new(1, PF3, 0x5b);
/// The same of unsigned integers; EVEX only.
pub(super) const UNSIGNED_TO_FLOAT: Op = Op::new(1, PF2, 0x7a);
pub(super) const FLOAT_TO_UNSIGNED: Op = Op::new(1, NONE, 0x78);
/// Between `f32` and `f64`.
pub(super) const FLOAT_TO_DOUBLE: Op = Op::new(1, NONE, 0x5a).part();
pub(super) const DOUBLE_TO_FLOAT: Op = Op::new(1, P66, 0x5a).wide(true);
/// Between `f64` and `i32`, half as many as lanes.
pub(super) const INT_TO_DOUBLE: Op = Op::new(1, PF3, 0xe6).part();
pub(super) const DOUBLE_TO_INT: Op = Op::new(1, P66, 0xe6).wide(true);
/// Between 64-bit integers and floats; EVEX only.
pub(super) const QUAD_TO_DOUBLE: Op = Op::new(1, PF3, 0xe6).wide(true);
pub(super) const QUAD_TO_FLOAT: Op = Op::new(1, NONE, 0x5b).wide(true);
pub(super) const DOUBLE_TO_QUAD: Op = Op::new(1, P66, 0x7a).wide(true);
/// Between `f16` and `f32`; the narrow side is `rm` both times.
pub(super) const HALF_TO_FLOAT: Op = Op::new(2, P66, 0x13).part();
pub(super) const FLOAT_TO_HALF: Op = Op::new(3, P66, 0x1d).part();

/// The signs of the lanes as bits of a general register; VEX only.
pub(super) const SIGNS: Op = Op::new(1, NONE, 0x50);
/// Which elements have a bit in common with those of `rm`, to a mask register; EVEX only.
pub(super) const TEST_WORDS: Op = Op::new(2, P66, 0x27);
/// A mask register as all ones or zeros in each lane; EVEX only.
pub(super) const MASK_TO_WORDS: Op = Op::new(2, PF3, 0x38).part();

/// On mask registers of 16 bits.
pub(super) const MASK_AND: Op = Op::new(1, NONE, 0x41).of_masks();
pub(super) const MASK_AND_NOT: Op = Op::new(1, NONE, 0x42).of_masks();
pub(super) const MASK_NOT: Op = Op::new(1, NONE, 0x44).of_masks();
pub(super) const MASK_OR: Op = Op::new(1, NONE, 0x45).of_masks();
pub(super) const MASK_XNOR: Op = Op::new(1, NONE, 0x46).of_masks();
pub(super) const MASK_XOR: Op = Op::new(1, NONE, 0x47).of_masks();
/// The low byte of `v` above that of `rm`.
pub(super) const MASK_UNPACK: Op = Op::new(1, P66, 0x4b).of_masks();
pub(super) const MASK_SHIFT_RIGHT: Op = Op::new(3, P66, 0x30).both_wide(true).of_masks();
pub(super) const MASK_MOVE: Op = Op::new(1, NONE, 0x90).of_masks();
pub(super) const MASK_STORE: Op = Op::new(1, NONE, 0x91).of_masks();
/// Flags: zero if the union is empty, carry if it is full.
pub(super) const MASK_TEST: Op = Op::new(1, NONE, 0x98).of_masks();
/// A mask register to a general one.
pub(super) const MASK_TO_GENERAL: Op = Op::new(1, NONE, 0x93).of_masks();
/// `rm` without the bits from number `v` on, of general registers; encoded as those of masks are.
pub(super) const LOW_BITS: Op = Op::new(2, NONE, 0xf5).of_masks();
