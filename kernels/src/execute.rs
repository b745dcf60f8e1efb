//! Scaffold.
#![allow(missing_docs, reason = "scaffold")]
use crate::error::Result;
use crate::plan::Plan;
use retape_runtime::Buffer;
#[derive(Debug)]
pub struct Executable(Plan);
impl Executable {
    pub fn compile(plan: Plan) -> Result<Executable> {
        Ok(Executable(plan))
    }
    pub fn plan(&self) -> &Plan {
        &self.0
    }
    pub fn run(&self, inputs: &[&Buffer]) -> Result<Vec<Buffer>> {
        self.evaluate(inputs)
    }
    pub fn evaluate(&self, _: &[&Buffer]) -> Result<Vec<Buffer>> {
        Ok(vec![])
    }
    pub fn code_bytes(&self) -> usize {
        0
    }
    pub fn arena_bytes(&self) -> usize {
        0
    }
}
