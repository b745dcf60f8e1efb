//! Where a training runs: `auto`, `cpu`, `cuda:N` or every GPU; and a table of the devices that there are.

use std::fmt;
use std::panic::Location;
use std::str::FromStr;

use retape::{ByteCount, Device, DeviceInfo};

use crate::error::{Error, Result};

/// Where a training is to run.
///
/// ```
/// use retape::Device;
/// use retape_train::Execution;
///
/// let devices = "auto".parse::<Execution>()?.devices()?; // a GPU if there is one
/// assert_eq!(devices.len(), 1);
/// assert_eq!("cpu".parse::<Execution>()?.device()?, Device::Cpu);
/// assert!("gpu7".parse::<Execution>().is_err());
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Execution {
    /// The first GPU that can be used, or the processor.
    #[default]
    Auto,
    /// This device.
    On(Device),
    /// Every GPU that can be used.
    EveryGpu,
}

impl FromStr for Execution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Execution> {
        match text {
            "auto" => Ok(Execution::Auto),
            "cuda:all" => Ok(Execution::EveryGpu),
            name => Device::parse(name).map(Execution::On).map_err(|_| {
                Error::argument_at(format!("{name:?} is none of `auto`, `cpu`, `cuda:N` and `cuda:all`"), None)
            }),
        }
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Execution::Auto => f.write_str("auto"),
            Execution::On(device) => device.fmt(f),
            Execution::EveryGpu => f.write_str("cuda:all"),
        }
    }
}

impl Execution {
    /// The devices, at least one, each ready to be used.
    ///
    /// # Errors
    ///
    /// Fails with what is missing if the device cannot be used, or if no GPU can and every GPU was asked for.
    pub fn devices(self) -> Result<Vec<Device>> {
        let usable = |device: &Device| *device != Device::Cpu && device.info().is_ok();
        match self {
            Execution::Auto => Ok(vec![Device::available().into_iter().find(usable).unwrap_or(Device::Cpu)]),
            Execution::On(device) => {
                device.info().map_err(|error| Error::Engine(error.into()))?;
                Ok(vec![device])
            }
            Execution::EveryGpu => {
                let devices: Vec<Device> = Device::available().into_iter().filter(usable).collect();
                if devices.is_empty() {
                    // The first one says what is missing.
                    Device::cuda(0).map_err(|error| Error::Engine(error.into()))?;
                }
                Ok(devices)
            }
        }
    }

    /// The first of the [devices](Execution::devices).
    ///
    /// # Errors
    ///
    /// As [`devices`](Execution::devices).
    #[track_caller]
    pub fn device(self) -> Result<Device> {
        let at = Location::caller();
        self.devices()?.first().copied().ok_or_else(|| Error::argument_at("no GPU can be used", Some(at)))
    }
}

/// The devices of this machine, with whether they can be used; as text a table.
///
/// ```
/// use retape_train::DeviceTable;
///
/// let table = DeviceTable::read();
/// assert!(table.to_string().lines().nth(1).is_some_and(|line| line.starts_with("cpu")));
/// ```
#[derive(Debug)]
pub struct DeviceTable {
    rows: Vec<(Device, std::result::Result<DeviceInfo, String>)>,
}

impl DeviceTable {
    /// Looks at the processor and every GPU; without any, at why there is none.
    pub fn read() -> DeviceTable {
        let row = |device: Device| (device, device.info().map_err(|error| error.to_string()));
        let mut rows: Vec<_> = Device::available().into_iter().map(row).collect();
        if rows.len() == 1 {
            // The absence of a GPU has a reason, which people look for here.
            rows.push(row(Device::Cuda(0)));
        }
        DeviceTable { rows }
    }

    /// Each device with its facts, or why it cannot be used.
    pub fn rows(&self) -> &[(Device, std::result::Result<DeviceInfo, String>)] {
        &self.rows
    }
}

impl fmt::Display for DeviceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| ByteCount(bytes as usize).to_string());
        let cells = |(device, info): &(Device, std::result::Result<DeviceInfo, String>)| match info {
            Ok(info) => {
                let capability = info.compute_capability.map(|(major, minor)| format!("{major}.{minor}"));
                let (total, free) = (bytes(info.total_bytes), bytes(info.free_bytes));
                let capability = capability.unwrap_or_else(|| "-".to_owned());
                [device.to_string(), info.name.clone(), capability, total, free, "yes".to_owned()]
            }
            Err(why) => {
                let none = || "-".to_owned();
                [device.to_string(), none(), none(), none(), none(), format!("no: {why}")]
            }
        };
        let head = ["device", "name", "compute capability", "memory", "free", "usable"].map(str::to_owned);
        let lines: Vec<[String; 6]> = [head].into_iter().chain(self.rows.iter().map(cells)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        for line in &lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                text += &format!("{cell:<0$}  ", width(column));
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}
