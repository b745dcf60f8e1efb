//! Scaffold.
#![allow(missing_docs, reason = "scaffold")]
use retape_runtime::Buffer;
#[derive(Debug)]
pub struct Plan;
#[derive(Debug)]
pub struct Executable;
#[derive(Debug)]
pub enum Error {
    Runtime(retape_runtime::Error),
    Internal(String),
}
impl Executable {
    pub fn compile(_: Plan) -> Result<Executable, Error> {
        Ok(Executable)
    }
    pub fn run(&self, _: &[&Buffer]) -> Result<Vec<Buffer>, Error> {
        Ok(vec![])
    }
    pub fn n_bytes(&self) -> usize {
        0
    }
    pub fn arena_bytes(&self) -> usize {
        0
    }
    pub fn n_steps(&self) -> usize {
        0
    }
}
