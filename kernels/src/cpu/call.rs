use super::Function;

impl Function {
    pub(crate) unsafe fn call(&self, table: *const *mut u8, begin: u64, end: u64) {
        let f: extern "C" fn(*const *mut u8, u64, u64) = unsafe { std::mem::transmute(self.code.address(self.offset)) };
        f(table, begin, end);
    }
}
