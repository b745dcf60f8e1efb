//! Parts of a tree that do not learn.

use retape::nn::{self, Dense};
use retape::optim::Adam;
use retape::{Tensor, accelerate, tree};
use retape_train::state::Frozen;

#[test]
fn frozen_parts_stay_whatever_the_optimiser_does() {
    let layers = vec![Dense::new(1, 3, 4), Dense::new(2, 4, 4), Dense::new(3, 4, 1)];
    let frozen = Frozen::parts(&layers, ["0", "1.bias"]).unwrap();
    assert_eq!(frozen.n_trainable(&layers), 16 + 5);
    let adam = Adam::new().weight_decay(0.1);
    let in_step = frozen.clone();
    let step = accelerate(move |layers: &Vec<Dense>, x: &Tensor, y: &Tensor| {
        let fixed = in_step.stop(layers);
        let hidden = fixed[1].apply(&fixed[0].apply(x).relu()).relu();
        let loss = nn::mse(&fixed[2].apply(&hidden), y);
        let gradient = loss.grad(layers);
        let (after, _) = adam.update(layers, &gradient, &adam.init(layers), 0.01);
        (in_step.keep(layers, after), gradient)
    });
    let (after, gradient) = step.call(&layers, Tensor::ones([5, 3]), Tensor::full([5, 1], 3.0_f32)).unwrap();
    for ((name, before), (_, after)) in tree::named(&layers).into_iter().zip(tree::named(&after)) {
        assert_eq!(tree::same_bits(before, after).unwrap(), frozen.contains(&name), "{name}");
    }
    assert!(gradient[0].weight.to_vec::<f32>().unwrap().iter().all(|&g| g == 0.0));
}

#[test]
fn a_part_that_is_not_there_is_an_error_that_lists_what_is() {
    let layers = vec![Dense::new(1, 1, 1)];
    let message = Frozen::parts(&layers, ["0.weigth"]).unwrap_err().to_string();
    assert!(message.contains("`0.weigth`") && message.contains("0.weight, 0.bias"), "{message}");
    // `1` is no beginning of a name because `10` is one.
    let many: Vec<Dense> = (0..11).map(|seed| Dense::new(seed, 1, 1)).collect();
    assert!(!Frozen::parts(&many, ["1"]).unwrap().contains("10.weight"));
}
