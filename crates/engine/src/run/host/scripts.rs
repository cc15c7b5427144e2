//! Scripts and functions, for SCRIPT and FUNCTION.

use crate::run::host::SessionHost;
use crate::run::scripts::local;
use haypile_commands::function::Functions;
use haypile_commands::host::{RunningFunction, Scripts};
use haypile_commands::{Error, Result};
use haypile_script::{Shebang, sha1_hex};

impl Scripts for SessionHost<'_, '_> {
    fn has_script(&self, name: &[u8]) -> bool {
        self.state.acts.loaded_script(name).is_some() || self.engine.scripts.find(name).is_some()
    }

    fn check_script(&self, text: &[u8]) -> Result<String> {
        let shebang = Shebang::of_script(text).map_err(Error::Quoting)?;
        let name = sha1_hex(text);
        let compiled = local::with(&self.engine.scripts, |interpreter| interpreter.compile(&name, text, shebang.bytes));
        compiled.map_err(|why| Error::text(format!("ERR Error compiling script (new function): {why}")))?;
        Ok(name)
    }

    fn running_function(&self) -> Option<RunningFunction> {
        self.engine.scripts.running.function()
    }

    fn functions(&self) -> Functions {
        self.engine.store().map_or_else(Functions::default, |store| Functions::of(&store.facts()))
    }
}
