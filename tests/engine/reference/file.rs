//! The cases of `ops.json`, with their tensors from `ops.safetensors`.

use retape::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// An op applied to inputs, with the results that are expected.
pub(crate) struct Case {
    /// Number and op.
    pub(crate) name: String,
    pub(crate) op: String,
    pub(crate) attrs: Value,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
    /// Cotangents, by output.
    pub(crate) cotangents: Vec<(usize, Tensor)>,
    /// Expected gradients, by input.
    pub(crate) grads: Vec<(usize, Tensor)>,
}

/// All cases, in the order of the file.
pub(crate) fn cases() -> Vec<Case> {
    let index: Value = serde_json::from_slice(include_bytes!("ops.json")).unwrap();
    let tensors = SafeTensors::deserialize(include_bytes!("ops.safetensors")).unwrap();
    array(&index["cases"]).iter().map(|case| read(case, &tensors)).collect()
}

fn read(case: &Value, tensors: &SafeTensors<'_>) -> Case {
    let all = |name: &str| array(&case[name]).iter().map(|entry| tensor(entry, tensors)).collect();
    let cotangent = |entry: &Value| (number(&entry["output"]), tensor(entry, tensors));
    let gradient = |(input, entry): (&String, &Value)| (input.parse().unwrap(), tensor(entry, tensors));
    let mut grads: Vec<_> = case["grads"].as_object().unwrap().iter().map(gradient).collect();
    grads.sort_by_key(|&(input, _)| input);
    Case {
        name: case["name"].as_str().unwrap().to_owned(),
        op: case["op"].as_str().unwrap().to_owned(),
        attrs: case["attrs"].clone(),
        inputs: all("inputs"),
        outputs: all("outputs"),
        cotangents: array(&case["cotangents"]).iter().map(cotangent).collect(),
        grads,
    }
}

/// The tensor that an entry describes; checks that both files agree about it.
fn tensor(entry: &Value, tensors: &SafeTensors<'_>) -> Tensor {
    let view = tensors.tensor(entry["tensor"].as_str().unwrap()).unwrap();
    let shape: Vec<usize> = array(&entry["shape"]).iter().map(number).collect();
    // Scalars are stored as one element along one axis.
    assert_eq!(view.shape(), if shape.is_empty() { &[1] } else { &shape[..] });
    let words = view.data().chunks_exact(8).map(|word| word.try_into().unwrap());
    match (entry["dtype"].as_str().unwrap(), view.dtype()) {
        ("float64", Dtype::F64) => Tensor::from_vec(words.map(f64::from_le_bytes).collect::<Vec<_>>(), shape),
        ("int64", Dtype::I64) => Tensor::from_vec(words.map(i64::from_le_bytes).collect::<Vec<_>>(), shape),
        ("bool", Dtype::BOOL) => Tensor::from_vec(view.data().iter().map(|&byte| byte != 0).collect::<Vec<_>>(), shape),
        other => panic!("dtype {other:?}"),
    }
    .unwrap()
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub(crate) fn number(value: &Value) -> usize {
    value.as_u64().unwrap().try_into().unwrap()
}

/// The elements as `f64`; exact for all that the file holds.
pub(crate) fn elements(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F64 => tensor.to_vec::<f64>().unwrap(),
        DType::F32 => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
        DType::I64 => tensor.to_vec::<i64>().unwrap().into_iter().map(|x| x as f64).collect(),
        DType::Bool => tensor.to_vec::<bool>().unwrap().into_iter().map(f64::from).collect(),
        other => panic!("dtype {other}"),
    }
}
