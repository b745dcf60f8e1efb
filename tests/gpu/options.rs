//! The option `--device` of the examples.

use retape::Device;

#[path = "../../examples/digits/device.rs"]
mod device;

use device::chosen;

#[test]
fn devices_are_chosen_by_name() {
    let gpu = crate::device::gpu();
    assert_eq!(chosen("auto"), Ok(gpu));
    assert_eq!(chosen(&gpu.to_string()), Ok(gpu));
    assert_eq!(chosen("cpu"), Ok(Device::Cpu));
}

#[test]
fn refusals_say_what_is_missing() {
    crate::device::gpu();
    let text = chosen("gpu").unwrap_err();
    assert!(text.starts_with("--device gpu: ") && text.contains("auto, cpu or cuda:0"), "{text}");
    let text = chosen("cuda:99").unwrap_err();
    assert!(text.starts_with("--device cuda:99: ") && text.contains("this machine has"), "{text}");
}
