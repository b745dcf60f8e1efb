//! Names, vectors and bits of trees, and sums of tensors.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use retape::nn::{BatchNorm, Conv2d, Dense};
use retape::optim::Adam;
use retape::{DType, Error, Result, Static, Tensor, Tree, accelerate, map, tree, value_and_grad, zip_map};

#[derive(Clone, Tree)]
struct Block {
    conv: Conv2d,
    norm: BatchNorm,
}

#[derive(Clone, Tree)]
enum Head {
    Linear(Dense),
    #[allow(dead_code, reason = "the other variant has other names")]
    None,
}

#[derive(Clone, Tree)]
struct Net {
    blocks: Vec<Block>,
    head: Head,
    extra: BTreeMap<String, Tensor>,
    pair: (Tensor, [Tensor; 2]),
}

fn net() -> Net {
    let block = |seed| Block { conv: Conv2d::new(seed, [1, 1], 1, 2).without_bias(), norm: BatchNorm::new(2) };
    let x = |value: f32| Tensor::from([value]);
    Net {
        blocks: vec![block(1), block(2)],
        head: Head::Linear(Dense::new(3, 2, 1)),
        extra: ["plain", "with.dot", ""].map(|key| (key.to_owned(), x(key.len() as f32))).into(),
        pair: (x(1.0), [x(2.0), x(3.0)]),
    }
}

#[test]
fn names_lead_to_tensors() {
    let net = net();
    let named = tree::named(&net);
    let names: Vec<&str> = named.iter().map(|(name, _)| &**name).collect();
    let expected = [
        "blocks.0.conv.weight",
        "blocks.0.norm.scale",
        "blocks.0.norm.offset",
        "blocks.1.conv.weight",
        "blocks.1.norm.scale",
        "blocks.1.norm.offset",
        "head.0.weight",
        "head.0.bias",
        "extra.\"\"",
        "extra.plain",
        "extra.\"with.dot\"",
        "pair.0",
        "pair.1.0",
        "pair.1.1",
    ];
    assert_eq!(names, expected);
    assert_eq!(named[10].1.to_vec::<f32>().unwrap(), [8.0]);
    assert_eq!(tree::named(&net.pair.0)[0].0, "value");
    let state = Adam::new().init(&net.pair.0);
    assert!(tree::named(&state).iter().map(|(name, _)| name).eq(["step", "first", "second"]));
    assert_eq!(tree::n_parameters(&net), 2 * (2 + 2 + 2) + 3 + 3 + 3);
    let poisoned = Tensor::ones([2]) + Tensor::ones([3]);
    assert_eq!(tree::n_parameters(&(poisoned, Tensor::ones([2, 5]), 7_u8, Tensor::zeros([0]))), 10);
}

/// Parameters as a file of names and numbers, and back.
#[test]
fn trees_are_rebuilt_by_name() -> Result<()> {
    let net = net();
    let file: BTreeMap<String, Tensor> = tree::named(&net).into_iter().map(|(name, x)| (name, x + 1.0)).collect();
    let blank = map(&net, Tensor::zeros_like);
    let read = tree::map_named(&blank, |name, _| file[name].clone());
    assert!(tree::same_bits(&read, &map(&net, |x| x + 1.0))?);
    // It can also be traced.
    let frozen = accelerate(|net: &Net| {
        let trained =
            tree::map_named(net, |name, x| if name.starts_with("head") { x.clone() } else { x.stop_gradient() });
        let loss: Tensor = tree::named(&trained).into_iter().map(|(_, x)| x.square().sum(..)).sum();
        loss.grad_or_zero(net)
    });
    let expected = tree::map_named(&net, |name, x| if name.starts_with("head") { x * 2.0 } else { x.zeros_like() });
    assert!(tree::same_bits(&frozen.call(&net)?, &expected)?);
    Ok(())
}

#[test]
fn the_first_error_ends_a_map() {
    let mut seen = 0;
    let result: std::result::Result<Net, String> = tree::try_map(&net(), |x| {
        seen += 1;
        if seen == 3 { Err("three".to_owned()) } else { Ok(x.clone()) }
    });
    assert_eq!((result.err().as_deref(), seen), (Some("three"), 3));
    let kept: std::result::Result<Net, String> = tree::try_map(&net(), |x| Ok(x.clone()));
    assert!(tree::same_bits(&kept.unwrap(), &net()).unwrap());
}

#[test]
fn trees_that_do_not_match_say_how_many_tensors_they_have() {
    let (a, b) = (vec![Tensor::zeros([2])], vec![Tensor::zeros([2]); 2]);
    let sum = zip_map([&a, &a, &b], |[x, y, z]| x + y + z);
    let Some(Error::Type { op: "zip_map", message, at, .. }) = sum[0].error() else { panic!("{sum:?}") };
    assert_eq!((&**message, at.file()), ("tree 2 has 2 tensors, tree 0 has 1", file!()));
    let traced = accelerate(move |x: &Tensor| {
        zip_map([&vec![x.clone()], &b], |[x, y]| x + y);
        x.clone()
    });
    assert!(traced.call(Tensor::zeros([2])).unwrap_err().to_string().contains("tree 1 has 2 tensors"));
}

#[test]
fn a_tree_is_a_vector_and_back() -> Result<()> {
    let net = net();
    let (vector, unravel) = tree::ravel(&net);
    let plain: Vec<f32> =
        tree::named(&net).into_iter().flat_map(|(_, x)| x.to_vec::<f32>().expect("concrete")).collect();
    assert_eq!((vector.to_vec::<f32>()?, vector.shape()), (plain.clone(), &[tree::n_parameters(&net)][..]));
    assert!(tree::same_bits(&unravel.apply(&vector), &net)?);

    // The same in a trace, there and back, with gradients in between.
    let weights: Tensor = (0..plain.len()).map(|i| i as f32 / 8.0).collect();
    let doubled = accelerate(|net: &Net, weights: &Tensor| {
        let (vector, unravel) = tree::ravel(net);
        let loss = (vector.square() * weights).sum(..);
        (unravel.apply(&(&vector * 2.0)), loss.grad(net), loss.grad(&vector))
    });
    let (twice, slope, flat) = doubled.call(&net, &weights)?;
    assert!(tree::same_bits(&twice, &map(&net, |x| x * 2.0))?);
    assert!(tree::same_bits(&tree::ravel(&slope).0, &flat)?);
    let expected: Vec<f32> = plain.iter().zip(0..).map(|(x, i)| 2.0 * (i as f32 / 8.0) * x).collect();
    assert_eq!(flat.to_vec::<f32>()?, expected);

    // A gradient with respect to the vector goes through the tree.
    let by_name = move |vector: &Tensor| {
        let net = unravel.apply(vector);
        (&net.pair.0 * &net.pair.1[0] * &net.pair.1[1]).sum(..)
    };
    let (_, slope) = value_and_grad(by_name, &vector)?;
    let n = plain.len();
    assert_eq!(slope.to_vec::<f32>()?[n - 3..], [6.0, 3.0, 2.0]);
    assert!(slope.to_vec::<f32>()?[..n - 3].iter().all(|&x| x == 0.0));
    Ok(())
}

#[test]
fn vectors_that_do_not_fit_are_refused() {
    let mixed = (Tensor::ones([2]), vec![Tensor::from([1.0_f64])]);
    let (vector, unravel) = tree::ravel(&mixed);
    let message = |x: &Tensor| x.error().map(ToString::to_string).unwrap_or_default();
    assert!(message(&vector).contains("`1.0` is f64[1], `0` is f32[2]: a vector has one dtype"), "{vector}");
    assert!(message(&vector).contains(file!()));
    assert_eq!(message(&unravel.apply(&Tensor::ones([3])).0), message(&vector));

    let pair = (Tensor::ones([2]), Tensor::ones([]));
    let (vector, unravel) = tree::ravel(&pair);
    for wrong in [Tensor::ones([4]), Tensor::ones([3, 1]), vector.cast(DType::F64)] {
        let (a, b) = unravel.apply(&wrong);
        assert!(message(&a).contains("but that of the tree is f32[3]"), "{a}");
        assert_eq!(message(&a), message(&b));
    }
    let poisoned = Tensor::ones([2]) + Tensor::ones([3]);
    assert_eq!(message(&tree::ravel(&(Tensor::ones([2]), poisoned.clone())).0), message(&poisoned));
    assert_eq!(message(&unravel.apply(&poisoned).1), message(&poisoned));
    assert!(message(&tree::ravel(&(3_u8, Static(1.0_f32))).0).contains("no tensors"));
    let traced = accelerate(|x: &Tensor| {
        let _ = tree::ravel(&(x.clone(), x.cast(DType::F64)));
        x.clone()
    });
    assert!(traced.call(Tensor::ones([2])).unwrap_err().to_string().contains("one dtype"));
}

#[test]
fn bits_are_compared_to_the_last() -> Result<()> {
    let same = |a: Tensor, b: Tensor| tree::same_bits(&a, &b);
    assert!(!same(Tensor::from([0.0_f32]), Tensor::from([-0.0_f32]))?);
    let nan = |payload: u64| Tensor::from([f64::from_bits(0x7ff8_0000_0000_0000 | payload), 1.0]);
    assert!(same(nan(5), nan(5))? && !same(nan(5), nan(6))?);
    assert!(
        !same(Tensor::zeros([2]), Tensor::zeros([1, 2]))?
            && !same(Tensor::zeros([2]), Tensor::zeros_of(DType::I32, [2]))?
    );
    assert!(
        same(Tensor::zeros([2, 0]), Tensor::zeros([2, 0]))? && !same(Tensor::zeros([2, 0]), Tensor::zeros([0, 2]))?
    );
    for dtype in DType::ALL {
        let x = Tensor::from([1.0_f32, 0.0, 1.0]).cast(dtype);
        assert!(same(x.clone(), Tensor::from([1.0_f32, 0.0, 1.0]).cast(dtype))?, "{dtype}");
        assert!(!same(x, Tensor::from([1.0_f32, 0.0, 0.0]).cast(dtype))?, "{dtype}");
    }
    let x = Tensor::ones([2]);
    assert!(!tree::same_bits(&(x.clone(), 1_u8), &(x.clone(), 2_u8))?);
    assert!(!tree::same_bits(&vec![x.clone()], &vec![x.clone(); 2])?);
    assert!(!tree::same_bits(&Some(x.clone()), &None)?);
    // A view has the bits of its elements only.
    assert!(same(Tensor::arange(6).reshape([2, 3]).at(0), Tensor::arange(3))?);

    let poisoned = &x + Tensor::ones([3]);
    assert!(matches!(tree::same_bits(&poisoned, &poisoned), Err(Error::Type { op: "add", .. })));
    let traced = accelerate(|x: &Tensor| {
        let _ = tree::same_bits(x, x);
        x.clone()
    });
    assert!(matches!(traced.call(&x), Err(Error::Traced { op: "same_bits", .. })));
    Ok(())
}

#[test]
fn sums_of_iterators_are_left_to_right() -> Result<()> {
    // The order shows in the rounding.
    let terms = [1e8_f32, 1.0, -1e8, 1.0].map(Tensor::from);
    let by_reference: Tensor = terms.iter().sum();
    let by_value: Tensor = terms.clone().into_iter().sum();
    let expected = ((1e8_f32 + 1.0) - 1e8) + 1.0;
    assert_eq!((by_reference.item::<f32>()?, by_value.item::<f32>()?), (expected, expected));
    let broadcast: Tensor = [Tensor::ones([2, 1]), Tensor::ones([3])].iter().sum();
    assert_eq!(broadcast.to_vec::<f32>()?, [2.0; 6]);
    let traced = accelerate(|xs: &Vec<Tensor>| {
        let sum: Tensor = xs.iter().map(Tensor::square).sum();
        sum.grad(xs)
    });
    let slopes = traced.call(vec![Tensor::from(1.0_f64), Tensor::from(2.5_f64)])?;
    assert_eq!((slopes[0].item::<f64>()?, slopes[1].item::<f64>()?), (2.0, 5.0));

    let nothing: Tensor = std::iter::empty::<Tensor>().sum();
    assert!(matches!(nothing.error(), Some(Error::Type { op: "sum", message, .. }) if message.contains("fold")));
    let mixed: Tensor = [Tensor::ones([2]), Tensor::ones([3]), Tensor::ones([2])].iter().sum();
    assert!(matches!(mixed.error(), Some(Error::Type { op: "sum", .. })));
    Ok(())
}

/// A tensor of a kind that no value has: function types here are names, not parts of the tree.
#[derive(Clone, Tree)]
struct Tagged<K> {
    value: Tensor,
    kind: PhantomData<K>,
}

#[derive(Clone, Tree)]
struct Pair {
    first: Tagged<fn() -> f32>,
    second: Vec<Tagged<fn(f32) -> f32>>,
}

#[test]
fn function_types_may_name_the_kind_of_a_part() -> Result<()> {
    let pair = Pair {
        first: Tagged { value: Tensor::from(2.0_f32), kind: PhantomData },
        second: vec![Tagged { value: Tensor::from(3.0_f32), kind: PhantomData }],
    };
    let product = accelerate(|pair: &Pair| &pair.first.value * &pair.second[0].value);
    assert_eq!(product.call(&pair)?.item::<f32>()?, 6.0);
    Ok(())
}
