//! Numbers that become elements: of integers and truth values exactly or not at all, of floats rounded once; the same
//! op by op and in a trace, in whatever method the number stands. And casts, which round once on every path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::{DType, Element, Graph, Scalar, Tensor, TensorType, accelerate, bf16, f16, trace};

/// The results of a formula op by op, and traced and interpreted; an error in the place of each that is one.
fn eager_and_traced(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> [Result<Tensor, String>; 2] {
    let eager = f(x);
    let eager = eager.error().map_or(Ok(eager.clone()), |error| Err(error.to_string()));
    let graph = trace(|x: &Tensor| f(x), x).map_err(|error| error.to_string());
    let interpreted = graph.and_then(|graph| {
        let outputs = graph.evaluate(std::slice::from_ref(x)).map_err(|error| error.to_string())?;
        Ok(outputs.first().unwrap_or(x).clone())
    });
    [eager, interpreted]
}

/// The results of a formula op by op, interpreted, and compiled.
fn everywhere(f: impl Fn(&Tensor) -> Tensor + Send + Sync, x: &Tensor) -> [Tensor; 3] {
    let [eager, interpreted] = eager_and_traced(&f, x).map(Result::unwrap);
    [eager, interpreted, accelerate(|x: &Tensor| f(x)).call(x).unwrap()]
}

/// The elements, of whatever dtype.
fn scalars(x: &Tensor) -> Vec<Scalar> {
    fn of<T: Element>(x: &Tensor) -> Vec<Scalar> {
        x.to_vec::<T>().unwrap().into_iter().map(Element::to_scalar).collect()
    }
    match x.dtype() {
        DType::F32 => of::<f32>(x),
        DType::F64 => of::<f64>(x),
        DType::F16 => of::<f16>(x),
        DType::Bf16 => of::<bf16>(x),
        DType::I32 => of::<i32>(x),
        DType::I64 => of::<i64>(x),
        DType::U32 => of::<u32>(x),
        DType::U8 => of::<u8>(x),
        DType::Bool => of::<bool>(x),
    }
}

/// The element that a number is, by exact arithmetic on wider integers; only for dtypes that are no floats.
fn whole(x: f64, exact: Option<i64>, dtype: DType) -> Option<i128> {
    let (low, high) = match dtype {
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::U8 => (0, 255),
        _ => (0, 1),
    };
    let whole = match exact {
        Some(whole) => whole.into(),
        None if x.fract() == 0.0 => x as i128,
        None => return None,
    };
    (low..=high).contains(&whole).then_some(whole)
}

/// A method of a tensor and a number.
type Method = Box<dyn Fn(&Tensor) -> Tensor>;

/// A name, the dtypes that a method is for, and the method.
type Named = (&'static str, fn(DType) -> bool, Method);

/// Methods that take a number, each with the dtypes that it is for; of zero each gives the number as an element.
macro_rules! methods {
    ($number:expr) => {{
        let n = $number;
        let any: fn(DType) -> bool = |_| true;
        let computes: fn(DType) -> bool = |dtype| dtype.is_float() || dtype.is_int();
        let compares: fn(DType) -> bool = |dtype| !dtype.is_half();
        let bits: fn(DType) -> bool = |dtype| dtype.is_int() || dtype == DType::Bool;
        let of_zeros: Vec<Named> = vec![
            ("full_like", any, Box::new(move |x| x.full_like(n))),
            ("pad", any, Box::new(move |x| x.pad(&[1], &[0], n).slice_axis(0, 0..1))),
            ("add", computes, Box::new(move |x| x + n)),
            ("add to", computes, Box::new(move |x| n + x)),
            ("or", bits, Box::new(move |x| x | n)),
            ("clamp", computes, Box::new(move |x| x.clamp(n, n))),
            ("select", compares, Box::new(move |x| x.eq(x).select(n, x))),
            ("select the other", compares, Box::new(move |x| x.ne(x).select(x, n))),
        ];
        of_zeros
    }};
}

/// Checks what a number becomes in some methods; `exact` is the number if it is an integer.
fn check_number(n: f64, exact: Option<i64>, methods: &[Named]) {
    for dtype in DType::ALL {
        let zero = Tensor::zeros_of(dtype, [1]);
        // 16-bit floats are held to exact comparisons elsewhere.
        let float = match (dtype, exact) {
            (DType::F32, None) => Some((n as f32).to_scalar()),
            (DType::F64, None) => Some(n.to_scalar()),
            (DType::F32, Some(i)) => Some((i as f32).to_scalar()),
            (DType::F64, Some(i)) => Some((i as f64).to_scalar()),
            _ => None,
        };
        for (name, _, method) in methods.iter().filter(|(_, takes, _)| takes(dtype)) {
            for found in eager_and_traced(method, &zero) {
                let name = format!("{name} of {n} in {dtype}");
                match (found, float) {
                    (Ok(found), Some(expected)) => {
                        let found = scalars(&found)[0];
                        let is_nan = found.to_f64().is_nan() && expected.to_f64().is_nan();
                        // The sum of two zeros has a sign of its own.
                        assert!(found == expected || is_nan || n == 0.0, "{name}: {found:?}");
                    }
                    (Ok(_), None) if dtype.is_half() => {}
                    (Ok(found), None) => {
                        assert_eq!(scalars(&found)[0].to_i64().map(i128::from), whole(n, exact, dtype), "{name}");
                    }
                    (Err(error), _) => {
                        assert!(dtype.is_int() || dtype == DType::Bool, "{name}: {error}");
                        assert_eq!(whole(n, exact, dtype), None, "{name}: {error}");
                        assert!(error.contains(&format!("is not a value of {dtype}")), "{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn numbers_are_exact_or_refused_in_every_method_and_on_every_path() {
    let two63 = 9_223_372_036_854_775_808.0;
    let numbers = [0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 255.0, 256.0, 1e30, f64::NAN, f64::INFINITY, two63, -two63, 1e300];
    for n in numbers {
        check_number(n, None, &methods!(n));
    }
    for n in [i64::MAX, i64::MIN, (1 << 53) + 1, -(1 << 31) - 1, 4_294_967_296, (1 << 60) + (1 << 36) + 1] {
        check_number(n as f64, Some(n), &methods!(n));
    }
}

#[test]
fn comparisons_and_extremes_take_the_same_numbers() {
    let x = Tensor::from([1_u8, 2]);
    for refused in [
        x.lt(256),
        x.ge(-1),
        x.eq(0.5),
        x.maximum(1e30),
        x.minimum(-1),
        x.clamp(-1, 300),
        Tensor::from([1_i64]).le(9_223_372_036_854_775_808.0),
        Tensor::from([true]).ne(2),
        Tensor::from([3]).pow(0.25),
    ] {
        let error = refused.error().unwrap().to_string();
        assert!(error.contains("is not a value of") || error.starts_with("pow: "), "{error}");
    }
    assert_eq!(x.lt(2).to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!(Tensor::from([true]).eq(1).to_vec::<bool>().unwrap(), [true]);
}

/// The nearest of 140.75 and 140.875, and not the even one: the number is above the middle by 2^-31 of it.
#[test]
fn constants_of_16_bits_round_once() {
    let above = 140.812_500_409_659_07;
    let x = Tensor::from([f16::ZERO]);
    assert_eq!(x.full_like(above).cast(DType::F64).to_vec::<f64>().unwrap(), [140.875]);
    let tie_and_one = (1_i64 << 62) + (1 << 54) + 1;
    let x = Tensor::from([bf16::ZERO]);
    assert_eq!(x.full_like(tie_and_one).to_vec::<bf16>().unwrap(), [bf16::from_bits(0x5e81)]);
    assert_eq!(x.pad(&[1], &[0], tie_and_one).to_vec::<bf16>().unwrap()[0], bf16::from_bits(0x5e81));
}

#[test]
fn coordinates_are_values_of_their_dtype() {
    for (dtype, extent) in [(DType::U8, 256), (DType::I64, 300), (DType::F32, 300), (DType::I32, 300)] {
        let iota = Tensor::iota(dtype, [extent, 2], 0).cast(DType::I64).to_vec::<i64>().unwrap();
        assert!(iota.into_iter().eq((0..extent as i64).flat_map(|i| [i, i])));
    }
    assert!(Tensor::iota(DType::U8, [2, 300], 0).error().is_none());
    for (dtype, extent) in [(DType::U8, 257), (DType::I32, (1 << 31) + 1), (DType::U32, (1 << 32) + 1)] {
        let error = Tensor::iota(dtype, [extent, 2], 0).error().unwrap().to_string();
        assert!(error.contains(&format!("coordinates up to {} are not values of {dtype}", extent - 1)), "{error}");
        let text = format!(
            "graph () {{\n %0 = iota {{axis=0, dtype={dtype}, shape=[{extent}]}} : {dtype}[{extent}]\n return %0\n}}"
        );
        assert!(text.parse::<Graph>().is_err());
    }
}

/// A matrix's element stands at or below the diagonal, or at or above it, however far away that is.
#[test]
fn triangles_of_every_diagonal() {
    let diagonals = [i64::MIN, i64::MIN + 1, -5, -4, -3, -1, 0, 1, 3, 4, 5, i64::MAX - 1, i64::MAX];
    for [rows, columns] in [[3, 4], [4, 3], [1, 1], [0, 3], [3, 0]] {
        let x = Tensor::ones([2, rows, columns]);
        for diagonal in diagonals {
            for lower in [true, false] {
                let kept = |row: usize, column: usize| {
                    let distance = column as i128 - row as i128 - i128::from(diagonal);
                    if lower { distance <= 0 } else { distance >= 0 }
                };
                let matrix = || (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)));
                let once: Vec<f32> = matrix().map(|(row, column)| f32::from(u8::from(kept(row, column)))).collect();
                for found in everywhere(|x| if lower { x.tril(diagonal) } else { x.triu(diagonal) }, &x) {
                    let found = found.to_vec::<f32>().unwrap();
                    assert_eq!(found, [once.clone(), once.clone()].concat(), "{diagonal} of {rows} x {columns}");
                }
            }
        }
    }
}

/// Every 11th middle between neighbours with 16 bits, what is beside it, and integers around it.
fn middles(to: DType) -> (Vec<f64>, Vec<i64>) {
    let infinity = if to == DType::F16 { 0x7c00 } else { 0x7f80 };
    let value = |bits: u64| Scalar { dtype: to, bits }.to_f64();
    let middles = (0..infinity - 1).step_by(11).map(|bits| (value(bits) + value(bits + 1)) / 2.0);
    let floats = middles.flat_map(|x| [x, x.next_down(), x.next_up()]).flat_map(|x| [x, -x]);
    let floats: Vec<f64> =
        floats.chain([0.0, -0.0, f64::MAX, f64::INFINITY, f64::NAN, 65_519.999_999, 65_520.0]).collect();
    let around = |x: &f64| [-1, 0, 1].map(|by| (*x as i64).saturating_add(by));
    let integers = floats.iter().flat_map(around).collect();
    (floats, integers)
}

#[test]
fn casts_round_once_on_every_path() {
    for to in [DType::F16, DType::Bf16] {
        let (floats, integers) = middles(to);
        let whole = |narrow: fn(i64) -> Scalar| integers.iter().map(|x| narrow(*x)).collect::<Vec<_>>();
        let sources: [(Tensor, Vec<Scalar>); 6] = [
            (Tensor::from(&floats), floats.iter().map(|x| x.to_scalar()).collect()),
            (floats.iter().map(|x| *x as f32).collect(), floats.iter().map(|x| (*x as f32).to_scalar()).collect()),
            (Tensor::from(&integers), whole(Element::to_scalar)),
            (integers.iter().map(|x| *x as i32).collect(), whole(|x| (x as i32).to_scalar())),
            (integers.iter().map(|x| *x as u32).collect(), whole(|x| (x as u32).to_scalar())),
            (integers.iter().map(|x| *x as u8).collect(), whole(|x| (x as u8).to_scalar())),
        ];
        for (x, of) in sources {
            for found in everywhere(|x| x.cast(to), &x) {
                for (found, x) in scalars(&found).into_iter().zip(&of) {
                    let is_equal = found == x.cast(to) || x.to_f64().is_nan() && found.to_f64().is_nan();
                    assert!(is_equal, "{x:?} to {to}: {found:?}");
                }
            }
        }
    }
}

/// Casts one after another stay those of eager ops when they are compiled, where the first one rounds too.
#[test]
fn casts_are_merged_only_if_nothing_is_lost() {
    let (_, integers) = middles(DType::Bf16);
    let integers: Vec<i64> = integers.into_iter().step_by(301).collect();
    for from in [DType::I64, DType::I32, DType::U32, DType::U8, DType::F32] {
        let x = Tensor::from(&integers).cast(from);
        for between in DType::ALL {
            for to in [DType::Bf16, DType::F32] {
                let [eager, interpreted, compiled] = everywhere(|x| x.cast(between).cast(to), &x);
                assert_eq!(scalars(&eager), scalars(&compiled), "{from} to {between} to {to}");
                assert_eq!(scalars(&eager), scalars(&interpreted), "{from} to {between} to {to}");
            }
        }
    }
}

#[test]
fn a_cast_is_one_op_for_every_pair() {
    for from in DType::ALL {
        for to in DType::ALL {
            let ty = TensorType::new(to, [1]);
            let graph = trace(|x: &Tensor| x.cast(to), &Tensor::zeros_of(from, [1])).unwrap();
            assert!(graph.nodes().len() <= 2 && graph.nodes().last().unwrap().ty == ty, "{graph}");
        }
    }
}
