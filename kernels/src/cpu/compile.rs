//! From loop nests to bytes of machine code.
//!
//! Guarantees that the bytes refer to nothing but functions of this crate, which live as long as the process.

use std::cell::Cell;
use std::sync::{LazyLock, OnceLock};
use std::thread;

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, ExternalName, Function, InstBuilder, Signature, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedMachReloc, FinalizedRelocTarget, timing};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::emit::{Emitter, Features};
use super::libcalls::{Libs, address, libcall_address};
use super::loops::{Bound, Loops};
use super::wide::{self, WideIsa};
use super::{Unit, run_whole};
use crate::error::{Error, Result};
use crate::ir::Inst;
use crate::schedule::LoopForm;

/// The machine that code is made for.
pub(super) struct Isa {
    /// The level of nests at the full width of vectors, if the machine has one.
    level: Option<WideIsa>,
    /// The machine for Cranelift, made for the first function that it compiles: programs without one leave its tables,
    /// and their pages, alone.
    cranelift: OnceLock<Result<Cranelift>>,
}

/// The machine as Cranelift knows it.
struct Cranelift {
    isa: OwnedTargetIsa,
    features: Features,
}

static ISA: LazyLock<Isa> = LazyLock::new(|| Isa { level: WideIsa::detect(), cranelift: OnceLock::new() });

/// The machine that this process runs on.
pub(super) fn isa() -> &'static Isa {
    &ISA
}

/// This machine, taken for one without fused multiply-add.
#[cfg(test)]
pub(super) fn isa_without_fma() -> Result<Isa> {
    let cranelift = Cranelift::detect()?;
    let features = Features { fma: false, ..cranelift.features };
    Ok(Isa { level: None, cranelift: OnceLock::from(Ok(Cranelift { features, ..cranelift })) })
}

/// This machine, taken for one with this level alone.
#[cfg(test)]
pub(super) fn isa_at(level: Option<WideIsa>) -> Isa {
    Isa { level, cranelift: OnceLock::new() }
}

impl Isa {
    fn cranelift(&self) -> Result<&Cranelift> {
        self.cranelift.get_or_init(Cranelift::detect).as_ref().map_err(Clone::clone)
    }

    /// Name and settings.
    pub(super) fn name(&self) -> Result<String> {
        let isa = &self.cranelift()?.isa;
        let settings: Vec<String> = isa.isa_flags().iter().map(|v| v.to_string()).collect();
        Ok(format!("{} {}{}", isa.name(), settings.join(" "), self.level.map_or("", WideIsa::name)))
    }
}

impl Cranelift {
    fn detect() -> Result<Cranelift> {
        let unsupported = |reason: String| Error::Unsupported(reason);
        let mut flags = settings::builder();
        let verify = if cfg!(debug_assertions) { "true" } else { "false" };
        let wanted = [
            ("opt_level", "speed"),
            ("enable_verifier", verify),
            // A frame of several pages is touched page by page, so that a full stack ends at its guard page.
            ("enable_probestack", "true"),
            ("probestack_strategy", "inline"),
            ("use_colocated_libcalls", "false"),
            ("is_pic", "false"),
        ];
        for (name, value) in wanted {
            flags.set(name, value).map_err(|e| unsupported(e.to_string()))?;
        }
        let builder = cranelift_native::builder().map_err(|e| unsupported(e.into()))?;
        let isa = builder.finish(settings::Flags::new(flags)).map_err(|e| unsupported(e.to_string()))?;
        let has = |name: &str| isa.isa_flags().iter().any(|v| v.name == name && v.as_bool() == Some(true));
        let x64 = isa.name() == "x64";
        let features = Features {
            fma: !x64 || (has("has_fma") && has("has_avx")),
            round: !x64 || has("has_sse41"),
            ordered_min: !x64,
        };
        Ok(Cranelift { isa, features })
    }
}

/// The memory of a compilation.
struct Scratch {
    context: Context,
    builder: FunctionBuilderContext,
}

thread_local! {
    /// The memory of the last compilation on this thread, unless one is under way or was left by a panic.
    static SPARE: Cell<Option<Box<Scratch>>> = {
        // Cranelift keeps thread-local values of its own. Values that are made first go last when a thread ends, so as
        // long as this one is there, those are too.
        drop(timing::compile());
        Cell::new(None)
    };
}

/// The machine code of a unit.
pub(super) fn machine_code(unit: &Unit<'_>, isa: &Isa) -> Result<Vec<u8>> {
    let forms = forms(unit)?;
    if let Some(code) = wide_code(unit, &forms, isa) {
        return Ok(code);
    }
    with_compiled(unit, &forms, isa.cranelift()?, false, |context| {
        let compiled = context.compiled_code().ok_or_else(|| Error::Internal("no code".into()))?;
        let mut bytes = compiled.buffer.data().to_vec();
        for reloc in compiled.buffer.relocs() {
            relocate(&mut bytes, reloc, &context.func)?;
        }
        Ok(bytes)
    })
}

/// The code of a unit at the full width of vectors, if it watches none of its stores.
fn wide_code(unit: &Unit<'_>, forms: &[LoopForm<'_>], isa: &Isa) -> Option<Vec<u8>> {
    if unit.trap { None } else { wide::machine_code(&unit.nests, forms, isa.level?) }
}

/// The CLIF text of a unit, before optimisation.
pub(crate) fn clif(unit: &Unit<'_>) -> Result<String> {
    let (cranelift, forms) = (isa().cranelift()?, forms(unit)?);
    let mut func = Function::new();
    build(&mut func, &mut FunctionBuilderContext::new(), unit, &forms, cranelift);
    Ok(func.display().to_string())
}

/// The machine instructions of a unit as text; those of full-width nests as bytes.
pub(crate) fn disassembly(unit: &Unit<'_>) -> Result<String> {
    let forms = forms(unit)?;
    if let Some(code) = wide_code(unit, &forms, isa()) {
        return Ok(bytes_as_text(&code));
    }
    with_compiled(unit, &forms, isa().cranelift()?, true, |context| {
        let text = context.compiled_code().and_then(|code| code.vcode.clone());
        text.ok_or_else(|| Error::Internal("no disassembly".into()))
    })
}

/// Bytes as lines that an assembler reads.
fn bytes_as_text(bytes: &[u8]) -> String {
    let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:#04x}")).collect::<Vec<_>>().join(", ");
    bytes.chunks(16).map(|bytes| format!("  .byte {}\n", line(bytes))).collect()
}

fn with_compiled<T: Send>(
    unit: &Unit<'_>,
    forms: &[LoopForm<'_>],
    cranelift: &Cranelift,
    want_disasm: bool,
    read: impl FnOnce(&Context) -> Result<T> + Send,
) -> Result<T> {
    let Ok(spare) = SPARE.try_with(Cell::take) else {
        return on_another_thread(|| with_compiled(unit, forms, cranelift, want_disasm, read));
    };
    let mut scratch =
        spare.unwrap_or_else(|| Box::new(Scratch { context: Context::new(), builder: FunctionBuilderContext::new() }));
    let Scratch { context, builder } = &mut *scratch;
    context.clear();
    context.set_disasm(want_disasm);
    build(&mut context.func, builder, unit, forms, cranelift);
    let compiled = context.compile(&*cranelift.isa, &mut ControlPlane::default());
    compiled.map_err(|e| Error::Internal(format!("{:?}", e.inner)))?;
    let result = read(context);
    let _ = SPARE.try_with(|place| place.set(Some(scratch)));
    result
}

/// Works on a thread that is not ending: on this one, Cranelift's thread-local values may be gone.
fn on_another_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let refused = |e: std::io::Error| Error::Unsupported(format!("this thread is ending, and no other can begin: {e}"));
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work).map_err(refused)?;
        worker.join().unwrap_or_else(|thrown| std::panic::resume_unwind(thrown))
    })
}

/// The loop forms of a unit's nests. Kernels must be expanded, and gathers need something to read.
fn forms<'n>(unit: &Unit<'n>) -> Result<Vec<LoopForm<'n>>> {
    for kernel in unit.nests.iter().map(|nest| &nest.kernel) {
        for inst in &kernel.insts {
            if matches!(inst, Inst::Call1(..) | Inst::Call2(..)) {
                return Err(Error::Internal("a transcendental function was not expanded".into()));
            }
            if matches!(inst, Inst::LoadAt(p, _) if kernel.params[p.index()].len == 0) {
                return Err(Error::Plan("a gather from an empty buffer".into()));
            }
        }
    }
    Ok(unit.nests.iter().map(|nest| LoopForm::of_nest(nest)).collect())
}

fn build(
    func: &mut Function,
    context: &mut FunctionBuilderContext,
    unit: &Unit<'_>,
    forms: &[LoopForm<'_>],
    cranelift: &Cranelift,
) {
    let mut signature = Signature::new(cranelift.isa.default_call_conv());
    signature.params.extend([AbiParam::new(types::I64); 3]);
    func.signature = signature;
    let mut e = Emitter {
        b: FunctionBuilder::new(func, context),
        libs: Libs::default(),
        features: cranelift.features,
        nonfinite: None,
    };
    let entry = e.b.create_block();
    e.b.append_block_params_for_function_params(entry);
    e.b.switch_to_block(entry);
    let [table, begin, end] = [0, 1, 2].map(|n| e.b.block_params(entry)[n]);
    if unit.trap {
        e.watch_stores();
    }
    let mut first = usize::from(unit.trap);
    for (&nest, form) in unit.nests.iter().zip(forms) {
        let items = match run_whole(&unit.nests) {
            true => [Bound::Fixed(0), Bound::Fixed(nest.items as i64)],
            false => [Bound::At(begin), Bound::At(end)],
        };
        Loops::emit(&mut e, (nest, form), (table, first), items);
        first += nest.kernel.params.len();
    }
    e.raise_flag(table);
    e.b.ins().return_(&[]);
    e.b.seal_all_blocks();
    e.b.finalize(cranelift.isa.frontend_config());
}

fn relocate(bytes: &mut [u8], reloc: &FinalizedMachReloc, func: &Function) -> Result<()> {
    let internal = || Error::Internal(format!("unexpected relocation {reloc:?}"));
    let FinalizedRelocTarget::ExternalName(name) = &reloc.target else { return Err(internal()) };
    let address = match name {
        ExternalName::User(name) => address(func.params.user_named_funcs()[*name].index),
        ExternalName::LibCall(libcall) => libcall_address(*libcall),
        ExternalName::TestCase(_) | ExternalName::KnownSymbol(_) => None,
    };
    let address = address.ok_or_else(internal)? as u64;
    let at = reloc.offset as usize;
    if reloc.kind != Reloc::Abs8 {
        return Err(internal());
    }
    let target = address.wrapping_add_signed(reloc.addend);
    bytes[at..at + 8].copy_from_slice(&target.to_le_bytes());
    Ok(())
}
