//! Where a training runs.

use retape::Device;
use retape_train::{DeviceTable, Execution};

#[test]
fn names_and_devices() {
    for name in ["auto", "cpu", "cuda:0", "cuda:3", "cuda:all"] {
        assert_eq!(name.parse::<Execution>().unwrap().to_string(), name);
    }
    for name in ["", "gpu", "cuda", "cuda:", "cuda:-1", "CPU", "cuda:01"] {
        let message = name.parse::<Execution>().unwrap_err().to_string();
        assert!(message.contains("`cuda:all`") && message.contains(&format!("{name:?}")), "{message}");
    }
    assert_eq!(Execution::On(Device::Cpu).devices().unwrap(), [Device::Cpu]);
    let missing = Execution::On(Device::Cuda(77)).devices();
    assert!(missing.is_err(), "{missing:?}");
}

#[test]
fn auto_takes_a_gpu_if_there_is_one() {
    let gpus: Vec<Device> = Device::available().into_iter().filter(|device| *device != Device::Cpu).collect();
    let device = Execution::Auto.device().unwrap();
    assert_eq!(device, gpus.first().copied().unwrap_or(Device::Cpu));
    assert_eq!(Execution::EveryGpu.devices().ok(), (!gpus.is_empty()).then_some(gpus));
}

#[test]
fn the_table_has_every_device_and_says_why_there_is_no_gpu() {
    let table = DeviceTable::read();
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("device") && lines[0].ends_with("usable"), "{text}");
    assert!(lines[1].starts_with("cpu") && lines[1].ends_with("yes"), "{text}");
    assert!(lines[2].starts_with("cuda:0"), "{text}");
    if Device::available().len() == 1 {
        assert!(lines[2].contains("no: "), "{text}");
    }
}
