//! The interpreter of each thread that has run a script, and the functions that it has read.

use crate::run::scripts::cache::Scripts;
use haypile_commands::REDIS_VERSION;
use haypile_commands::function::Functions;
use haypile_script::{Bounds, Interpreter};
use haypile_store::Facts;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that an interpreter takes at most.
const MEMORY_BYTES: usize = 80 << 20;

/// The interpreter of a thread.
struct Local {
    interpreter: Interpreter,
    /// The number of flushes of the cache that its compiled scripts are from.
    flushes: u64,
    /// Bytes that are counted for it.
    counted: usize,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };

    /// The functions of the facts that were seen last.
    static FUNCTIONS: RefCell<Option<(Arc<Facts>, Rc<Functions>)>> = const { RefCell::new(None) };
}

/// Returns the functions of these facts, which are mostly those that this thread has seen last.
pub(crate) fn functions(facts: &Arc<Facts>) -> Rc<Functions> {
    FUNCTIONS.with_borrow_mut(|seen| match seen {
        Some((of, functions)) if Arc::ptr_eq(of, facts) => functions.clone(),
        _ => {
            let functions = Rc::new(Functions::of(facts));
            *seen = Some((facts.clone(), functions.clone()));
            functions
        }
    })
}

/// Runs something on this thread's interpreter.
pub(crate) fn with<R>(scripts: &Scripts, run: impl FnOnce(&mut Interpreter) -> R) -> R {
    LOCAL.with_borrow_mut(|local| {
        let flushes = scripts.flushes();
        let local = local.get_or_insert_with(|| {
            let bounds = Bounds { memory_bytes: MEMORY_BYTES };
            let interpreter = Interpreter::new(REDIS_VERSION, bounds).expect("an interpreter takes some kilobytes");
            Local { interpreter, flushes, counted: 0 }
        });
        if local.flushes != flushes {
            local.interpreter.forget_scripts();
            local.flushes = flushes;
        }
        let result = run(&mut local.interpreter);
        if local.interpreter.is_worn() {
            let bounds = Bounds { memory_bytes: MEMORY_BYTES };
            local.interpreter = Interpreter::new(REDIS_VERSION, bounds).expect("an interpreter takes some kilobytes");
        }
        let bytes = local.interpreter.memory_bytes();
        let all = &scripts.interpreter_bytes;
        match bytes >= local.counted {
            true => all.fetch_add(bytes - local.counted, Ordering::Relaxed),
            false => all.fetch_sub(local.counted - bytes, Ordering::Relaxed),
        };
        local.counted = bytes;
        result
    })
}
