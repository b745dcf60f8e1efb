//! How each op of the file is spelt in this crate.

use retape::ops::{ConvOptions, Padding, Triangular};
use retape::{DType, Tensor, concat, einsum, nn, stack};
use serde_json::Value;

use super::file::{array, number};

/// Applies the op of a case; none if there is no such op.
pub(crate) fn apply(op: &str, attrs: &Value, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let x = inputs.first()?;
    let one = elementwise(op, attrs, inputs)
        .or_else(|| fold(op, attrs, x))
        .or_else(|| movement(op, attrs, inputs))
        .or_else(|| algebra(op, attrs, inputs));
    one.map(|y| vec![y]).or_else(|| network(op, attrs, inputs))
}

fn elementwise(op: &str, attrs: &Value, inputs: &[Tensor]) -> Option<Tensor> {
    let x = &inputs[0];
    if let [_, y] = inputs {
        return binary(op, x, y);
    }
    Some(match op {
        "neg" => -x,
        "abs" => x.abs(),
        "sign" => x.sign(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round_half_even" => x.round(),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "expm1" => x.expm1(),
        "log" => x.log(),
        "log2" => x.log2(),
        "log1p" => x.log1p(),
        "sqrt" => x.sqrt(),
        "rsqrt" => x.rsqrt(),
        "reciprocal" => x.reciprocal(),
        "square" => x.square(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "asinh" => x.asinh(),
        "acosh" => x.acosh(),
        "atanh" => x.atanh(),
        "erf" => x.erf(),
        "erfc" => x.erfc(),
        "lgamma" => x.lgamma(),
        "sigmoid" => x.sigmoid(),
        "relu" => x.relu(),
        "softplus" => x.softplus(),
        "silu" => x.silu(),
        "gelu_tanh" => x.gelu_tanh(),
        "gelu_erf" => x.gelu_erf(),
        "leaky_relu" => x.leaky_relu(0.01),
        "elu" => x.elu(1.0),
        "log_sigmoid" => x.log_sigmoid(),
        "clamp" => x.clamp(real(&attrs["lo"]), real(&attrs["hi"])),
        "select" => x.select(&inputs[1], &inputs[2]),
        _ => return None,
    })
}

fn binary(op: &str, x: &Tensor, y: &Tensor) -> Option<Tensor> {
    Some(match op {
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" => x / y,
        "maximum" => x.maximum(y),
        "minimum" => x.minimum(y),
        "atan2" => x.atan2(y),
        "pow" => x.pow(y),
        "lt" => x.lt(y),
        "le" => x.le(y),
        "eq" => x.eq(y),
        "ne" => x.ne(y),
        _ => return None,
    })
}

fn fold(op: &str, attrs: &Value, x: &Tensor) -> Option<Tensor> {
    let axis = attrs["axis"].as_i64().unwrap_or_default() as isize;
    let axes = attrs["axes"].as_array().map(|axes| axes.iter().map(|axis| integer(axis) as isize).collect::<Vec<_>>());
    let axes = axes.unwrap_or_default();
    Some(match (op, attrs["keepdims"].as_bool().unwrap_or_default()) {
        ("sum", false) => x.sum(axes),
        ("sum", true) => x.sum_keep(axes),
        ("mean", false) => x.mean(axes),
        ("mean", true) => x.mean_keep(axes),
        ("max", false) => x.max(axes),
        ("max", true) => x.max_keep(axes),
        ("min", false) => x.min(axes),
        ("min", true) => x.min_keep(axes),
        ("prod", false) => x.prod(axes),
        ("prod", true) => x.prod_keep(axes),
        ("var", false) => x.var(axes),
        ("var", true) => x.var_keep(axes),
        ("logsumexp", false) => x.logsumexp(axes),
        ("logsumexp", true) => x.logsumexp_keep(axes),
        ("argmax", _) => x.argmax(axis),
        ("argmin", _) => x.argmin(axis),
        ("cumsum", _) => x.cumsum(axis),
        ("cumprod", _) => x.cumprod(axis),
        ("softmax", _) => x.softmax(axis),
        ("log_softmax", _) => x.log_softmax(axis),
        ("sort", _) => x.sort(axis),
        ("argsort", _) => x.argsort(axis),
        _ => return None,
    })
}

fn movement(op: &str, attrs: &Value, inputs: &[Tensor]) -> Option<Tensor> {
    let x = &inputs[0];
    let all: Vec<&Tensor> = inputs.iter().collect();
    let extents = |name: &str| array(&attrs[name]).iter().map(number).collect::<Vec<_>>();
    let axes = |name: &str| array(&attrs[name]).iter().map(|axis| integer(axis) as isize).collect::<Vec<_>>();
    let axis = || integer(&attrs["axis"]) as isize;
    Some(match op {
        "reshape" => x.reshape(extents("shape")),
        "permute" => x.permute(axes("perm")),
        "broadcast_to" => x.broadcast_to(extents("shape")),
        "slice" => x.slice(&extents("start"), &extents("stop"), &extents("step")),
        "pad" => x.pad(&extents("low"), &extents("high"), real(&attrs["value"])),
        "flip" => x.flip(axes("axes")),
        "concat" => concat(&all, axis()),
        "stack" => stack(&all, axis()),
        "take" => x.take(&inputs[1], axis()),
        "take_along_axis" => x.take_along(&inputs[1], axis()),
        "scatter_add" => x.scatter_add(axis(), &inputs[1], &inputs[2]),
        "one_hot" => x.one_hot_of(DType::F64, number(&attrs["n"])),
        "triu" => x.triu(0),
        "tril" => x.tril(0),
        _ => return None,
    })
}

fn algebra(op: &str, attrs: &Value, inputs: &[Tensor]) -> Option<Tensor> {
    let x = &inputs[0];
    let pair = |name: &str| match &attrs[name] {
        Value::Null => [1, 1],
        value => [number(&value[0]), number(&value[1])],
    };
    let convolution = || ConvOptions {
        stride: pair("stride"),
        padding: padding(&attrs["padding"]),
        dilation: pair("dilation"),
        groups: attrs["groups"].as_u64().unwrap_or(1) as usize,
    };
    Some(match op {
        "matmul" => x.matmul(&inputs[1]),
        "einsum" => einsum(attrs["equation"].as_str().unwrap(), &inputs.iter().collect::<Vec<_>>()),
        "cholesky" => x.cholesky(),
        "solve_triangular" => {
            let lower = attrs["lower"].as_bool().unwrap();
            x.solve_triangular(&inputs[1], if lower { Triangular::LOWER } else { Triangular::UPPER })
        }
        "conv2d" => x.conv2d(&inputs[1], convolution()),
        "conv_transpose2d" => x.conv_transpose2d(&inputs[1], convolution()),
        "max_pool2d" => x.max_pool2d(pair("window"), pair("stride"), padding(&attrs["padding"])),
        "avg_pool2d" => x.avg_pool2d(pair("window"), pair("stride"), padding(&attrs["padding"])),
        _ => return None,
    })
}

fn network(op: &str, attrs: &Value, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    Some(match (op, inputs) {
        ("batch_norm_train", [x, scale, offset]) => {
            let (y, mean, variance) = nn::batch_norm(x, scale, offset, real(&attrs["eps"]));
            vec![y, mean, variance]
        }
        ("layer_norm", [x, scale, offset]) => vec![nn::layer_norm(x, scale, offset, real(&attrs["eps"]))],
        ("softmax_cross_entropy", [logits, targets]) => vec![nn::softmax_cross_entropy(logits, targets)],
        ("half_mse", [predictions, targets]) => vec![nn::half_mse(predictions, targets)],
        ("attention_causal", [queries, keys, values]) => {
            vec![nn::attention(queries, keys, values, real(&attrs["scale"]), nn::Mask::Causal)]
        }
        ("lstm_cell", [x, h, c, input_weight, hidden_weight, bias]) => {
            let (h, c) = nn::lstm_cell(x, h, c, input_weight, hidden_weight, bias);
            vec![h, c]
        }
        _ => return None,
    })
}

fn padding(value: &Value) -> Padding {
    match value.as_str() {
        Some("SAME") => Padding::Same,
        Some("VALID") => Padding::Valid,
        Some(other) => panic!("padding {other}"),
        None => Padding::Explicit([0, 1].map(|axis| [0, 1].map(|side| number(&value[axis][side])))),
    }
}

fn integer(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

fn real(value: &Value) -> f64 {
    value.as_f64().unwrap()
}
