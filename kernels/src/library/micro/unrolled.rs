//! Loops over the rows of a tile, written out.
//!
//! A compiler that finds the body of a loop too long for its number of turns leaves the loop, with the sums of a tile in
//! memory: every multiplication then waits for a load and a store. Its limit depends on the instruction set, on the number
//! of rows, and on the version of the compiler, so that the loops of the tallest tiles are not left to it.

/// Most rows of a tile.
pub(super) const MOST_ROWS: usize = 16;

/// Runs a block once for each row below a constant, with the row's number as a constant.
macro_rules! each_row {
    ($row:ident < $rows:ident $body:block) => {
        each_row!(@ $row $rows $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $row:ident $rows:ident $body:block $($number:literal)*) => {
        const { assert!($rows <= $crate::library::micro::unrolled::MOST_ROWS) };
        $(
            if $number < $rows {
                let $row: usize = $number;
                $body
            }
        )*
    };
}
pub(super) use each_row;
