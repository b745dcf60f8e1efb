//! The descriptors that are tested: every kernel, dtype and path, with shapes at the edges of blocks and tiles.

use retape_kernels::library::{
    ArgReduce, CastHalf, Cholesky, Extreme, Join, Library, Philox, Pool2d, PoolKind, PoolPass, Recurrence, Scan,
    ScanKind, ScatterAdd, Sort, Transpose, TriangularSolve,
};
use retape_runtime::{DType, Shape};

use super::data::Draw;

const NUMBERS: [DType; 6] = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U8];
const FLOATS: [DType; 2] = [DType::F32, DType::F64];

pub(crate) fn philox() -> Vec<Library> {
    [0, 1, 3, 4, 5, 1023, 1024, 1025, 4099].map(|len| Philox { len, stream: len as u32 % 5 }.into()).into()
}

pub(crate) fn cast_half() -> Vec<Library> {
    let pairs = DType::ALL.into_iter().flat_map(|from| DType::ALL.map(|to| (from, to)));
    let lens = [0, 1, 7, 8, 9, 2048, 2061];
    let all = pairs.flat_map(|(from, to)| lens.map(|len| CastHalf { from, to, len }));
    all.filter(CastHalf::is_valid).map(Library::from).collect()
}

pub(crate) fn join(draw: &mut Draw) -> Vec<Library> {
    let mut all = vec![];
    for dtype in DType::ALL {
        for outer in [0, 1, 3, 40] {
            for inner in [1, 7] {
                let lens: Vec<usize> = (0..draw.below(5) + 1).map(|_| [0, 1, 2, 90][draw.below(4)]).collect();
                let join = Join::contiguous(dtype, outer, Shape::new(&lens), inner);
                let offsets = lens.iter().map(|_| draw.below(5)).collect();
                let pitches = lens.iter().map(|len| [len * inner + 2, 0][draw.below(2)]).collect();
                all.extend([Join { offsets, pitches, ..join.clone() }.into(), join.into()]);
            }
        }
    }
    // More inputs than a launch copies, of several blocks each.
    let lens: Vec<usize> = (0..70).map(|n| [3, 0, 300][n % 3]).collect();
    all.push(Join::contiguous(DType::F32, 2, Shape::new(&lens), 1).into());
    all
}

pub(crate) fn transpose() -> Vec<Library> {
    let shapes = [[0, 3, 2], [1, 0, 4], [1, 1, 1], [1, 5, 7], [3, 20, 33], [2, 300, 3]];
    let all = DType::ALL
        .into_iter()
        .flat_map(|dtype| shapes.map(|[batch, rows, cols]| Transpose::contiguous(dtype, [batch, rows, cols])));
    // Parts of matrices, whose rows take turns.
    let strided = [[7, 4, 11, 9, 30], [500, 0, 0, 1000, 3]].map(|strides| Transpose {
        dtype: DType::F32,
        batch: [3, 2],
        between: [2, 3],
        rows: 20,
        cols: 9,
        offset: 5,
        strides,
    });
    all.chain(strided).map(Library::from).collect()
}

pub(crate) fn arg_reduce() -> Vec<Library> {
    // A thread or a warp per line; a line in parts, and so many parts that warps search them.
    let shapes = [
        [2, 0, 3],
        [0, 3, 3],
        [1, 1, 1],
        [3, 5, 7],
        [2, 70, 40],
        [5, 100, 1],
        [3, 64, 31],
        [1, 4000, 3],
        [1, 900, 33],
        [1, 3000, 1],
        [1, 40_000, 1],
    ];
    let mut all = vec![];
    for dtype in NUMBERS.into_iter().chain([DType::Bool]) {
        for &kind in Extreme::ALL {
            for [outer, len, inner] in shapes {
                if len < 10_000 || dtype == DType::F32 {
                    all.push(ArgReduce { dtype, outer, len, inner, kind }.into());
                }
            }
        }
    }
    all
}

pub(crate) fn pool(draw: &mut Draw) -> Vec<Library> {
    let mut all = vec![];
    for _ in 0..24 {
        for dtype in FLOATS {
            for &kind in PoolKind::ALL {
                for &pass in PoolPass::ALL {
                    let pool = Pool2d {
                        dtype,
                        batch: draw.below(3),
                        height: draw.below(8),
                        width: draw.below(8),
                        channels: [0, 1, 3, 16, 37][draw.below(5)],
                        window: [draw.below(3) + 1, draw.below(4) + 1],
                        stride: [draw.below(3) + 1, draw.below(3) + 1],
                        padding: [[draw.below(3), draw.below(3)], [draw.below(4), draw.below(3)]],
                        kind,
                        pass,
                    };
                    if pool.is_valid() {
                        all.push(pool.into());
                    }
                }
            }
        }
    }
    all
}

pub(crate) fn scan() -> Vec<Library> {
    // A thread per line with and without a rest; blocks of one warp, of several, of several tiles.
    let shapes = [[2, 0, 3], [0, 3, 3], [3, 1, 2], [2, 21, 5], [3, 33, 1], [1, 200, 3], [2, 1100, 1], [1, 2500, 1]];
    let mut all = vec![];
    for dtype in NUMBERS {
        for &kind in ScanKind::ALL {
            for flags in 0..4 {
                for [outer, len, inner] in shapes {
                    let (reverse, exclusive) = (flags & 1 != 0, flags & 2 != 0);
                    all.push(Scan { dtype, outer, len, inner, kind, reverse, exclusive }.into());
                }
            }
        }
    }
    all
}

/// Lines that are cut into parts, and many lines of strided elements.
pub(crate) fn long_scan() -> Vec<Library> {
    let mut all = vec![];
    for (dtype, kind, reverse, exclusive) in [
        (DType::F32, ScanKind::Sum, false, false),
        (DType::F32, ScanKind::Max, true, false),
        (DType::F64, ScanKind::Sum, true, true),
        (DType::I32, ScanKind::Sum, false, true),
        (DType::U8, ScanKind::Prod, true, false),
    ] {
        for [outer, len, inner] in [[1, 16_389, 1], [32, 35, 64]] {
            all.push(Scan { dtype, outer, len, inner, kind, reverse, exclusive }.into());
        }
    }
    all
}

/// Recurrences by the same paths.
pub(crate) fn recurrence() -> Vec<Library> {
    let shapes = [
        [2, 0, 3],
        [0, 3, 3],
        [3, 1, 2],
        [2, 21, 5],
        [3, 33, 1],
        [1, 200, 3],
        [2, 1100, 1],
        [1, 2500, 1],
        [1, 16_389, 1],
        [2, 16_389, 1],
        [1, 16_389, 2],
        [32, 35, 64],
    ];
    let mut all = vec![];
    for dtype in NUMBERS {
        for flags in 0..4 {
            let [reverse, lagging] = [flags & 1 != 0, flags & 2 != 0];
            for [outer, len, inner] in shapes {
                if outer * len * inner < 10_000 || dtype == DType::F32 {
                    all.push(Recurrence { dtype, outer, len, inner, reverse, lagging }.into());
                }
            }
        }
    }
    all
}

pub(crate) fn sort() -> Vec<Library> {
    let shapes = [[2, 0, 3], [0, 2, 1], [2, 1, 3], [3, 9, 1], [2, 64, 3], [1, 65, 2], [1, 1000, 1], [1, 1500, 1]];
    let mut all = vec![];
    for dtype in NUMBERS.into_iter().chain([DType::Bool]) {
        for descending in [false, true] {
            for [outer, len, inner] in shapes {
                all.push(Sort { dtype, outer, len, inner, descending, kept: len }.into());
                all.push(Sort { dtype, outer, len, inner, descending, kept: len / 3 }.into());
            }
        }
    }
    all
}

/// Lines of several tiles, which take one to three passes.
pub(crate) fn long_sort() -> Vec<Library> {
    let mut all = vec![];
    for (dtype, outer, len, inner) in [
        (DType::F32, 1, 2049, 1),
        (DType::F32, 2, 5000, 1),
        (DType::I32, 1, 4100, 2),
        (DType::F64, 1, 1025, 1),
        (DType::I64, 1, 4500, 1),
        (DType::U8, 1, 9000, 1),
    ] {
        for (descending, kept) in [(false, len), (true, len), (true, len / 2)] {
            all.push(Sort { dtype, outer, len, inner, descending, kept }.into());
        }
    }
    all
}

pub(crate) fn scatter_add(draw: &mut Draw) -> Vec<Library> {
    let mut all = vec![];
    for dtype in NUMBERS {
        for index_dtype in [DType::I32, DType::I64, DType::U32] {
            for round in 0..8 {
                all.push(ScatterAdd {
                    dtype,
                    index_dtype,
                    outer: draw.below(4),
                    len: draw.below(9),
                    inner: [0, 1, 3, 50][draw.below(4)],
                    n_indices: [draw.below(10), draw.below(100)][round / 2 % 2],
                    along: round % 2 == 0,
                    from_zeros: round % 3 == 0,
                });
            }
        }
    }
    let long = |outer, len, inner, n_indices, [along, from_zeros]: [bool; 2]| ScatterAdd {
        dtype: DType::F32,
        index_dtype: DType::I32,
        outer,
        len,
        inner,
        n_indices,
        along,
        from_zeros,
    };
    // One destination, and more indices than a tile of the sort has.
    all.extend([
        long(1, 1, 1, 500, [false, true]),
        long(2, 300, 2, 2500, [false, false]),
        long(2, 300, 2, 2500, [false, true]),
        long(1, 20, 3, 2100, [true, false]),
    ]);
    all.into_iter().map(Library::from).collect()
}

pub(crate) fn cholesky() -> Vec<Library> {
    let mut all = vec![];
    for dtype in FLOATS {
        for n in [0, 1, 2, 31, 32, 33, 64, 70] {
            for batch in [0, 1, 3] {
                all.push(Cholesky { dtype, batch, n }.into());
            }
        }
        all.push(Cholesky { dtype, batch: 1, n: 130 }.into());
    }
    all
}

pub(crate) fn triangular_solve(draw: &mut Draw) -> Vec<Library> {
    let mut all = vec![];
    for flags in 0..8 {
        for round in 0..12 {
            let kernel = TriangularSolve {
                dtype: FLOATS[round % 2],
                batch: draw.below(3),
                n: [0, 1, 2, 9, 32, 33, 70][draw.below(7)],
                n_rhs: [0, 1, 3, 40][draw.below(4)],
                lower: flags & 1 != 0,
                transpose: flags & 2 != 0,
                unit_diagonal: flags & 4 != 0,
            };
            all.push(kernel.into());
        }
    }
    all
}
