//! The two evaluators of filters on kernel events: BPF programs, or the recorder with tracefs.

use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::ftrace;
use trackway_kernel::record::context::Asked;
use trackway_kernel::record::filter::{Filter, FilterError, Memory};
use trackway_kernel::record::staging::{Staged, Step};
use trackway_session::{FilterSource, FilterSpec};

/// A filter as it is asked.
pub(crate) trait Asking: Sized {
    /// What all of them use together.
    type Memory: std::fmt::Debug;

    /// That of these filters, for so many CPUs of a kernel with these types.
    fn memory(
        cpus: usize,
        filters: &[FilterSpec],
        btf: Option<&Btf>,
    ) -> std::io::Result<Self::Memory>;

    /// The filter of this object, with this number, for an event; `None`: the event lacks what it
    /// asks for.
    fn make(
        object: &[u8],
        number: usize,
        staged: &Staged,
        memory: &mut Self::Memory,
    ) -> Result<Option<Self>, FilterError>;

    /// Whether an event may be asked all of these.
    fn check(_all: &[Self]) -> Result<(), FilterError> {
        Ok(())
    }

    /// Of the kernel's contexts, by name, which are not there to be asked for: what they are
    /// instead, and why, if that is known.
    fn hidden(memory: &Self::Memory, name: &str) -> Option<(&'static str, Option<String>)>;

    /// Of each field of an event why it cannot be asked for, if it cannot.
    fn withheld(staged: &Staged) -> Vec<Option<&'static str>>;

    /// Whether a filter that asks for this field may find it unknown, and then lets the event pass.
    fn may_be_unknown(_staged: &Staged, _field: &str) -> bool {
        false
    }
}

impl Asking for Filter {
    type Memory = Memory;

    fn memory(cpus: usize, filters: &[FilterSpec], btf: Option<&Btf>) -> std::io::Result<Memory> {
        let is_in =
            |text: &[u8], name: &str| text.windows(name.len()).any(|part| part == name.as_bytes());
        let may_be_asked = |name: &str| {
            filters.iter().any(|filter| match &filter.source {
                FilterSource::Expression(text) => is_in(text.as_bytes(), name),
                FilterSource::Object(object) => is_in(&object.bytes, name),
                _ => true,
            })
        };
        Memory::new(cpus, filters.len(), Asked::find(btf, may_be_asked))
    }

    fn make(
        object: &[u8],
        number: usize,
        staged: &Staged,
        memory: &mut Memory,
    ) -> Result<Option<Self>, FilterError> {
        Self::new(object, number, staged, memory)
    }

    fn check(all: &[Self]) -> Result<(), FilterError> {
        Self::check_steps(all)
    }

    fn hidden(memory: &Memory, name: &str) -> Option<(&'static str, Option<String>)> {
        let hidden = memory.contexts().hidden(name)?;
        Some(("what this kernel does not show", Some(hidden.to_string())))
    }

    fn withheld(staged: &Staged) -> Vec<Option<&'static str>> {
        let why = "what is not in this kernel's record";
        let withheld = |step: &Step| matches!(step, Step::Unknown(_)).then_some(why);
        staged.steps.iter().map(withheld).collect()
    }

    fn may_be_unknown(staged: &Staged, field: &str) -> bool {
        staged.may_be_unknown(field)
    }
}

impl Asking for ftrace::filter::Filter {
    type Memory = ();

    fn memory(_: usize, _: &[FilterSpec], _: Option<&Btf>) -> std::io::Result<()> {
        Ok(())
    }

    fn make(
        object: &[u8],
        number: usize,
        staged: &Staged,
        (): &mut (),
    ) -> Result<Option<Self>, FilterError> {
        Self::new(object, number, staged)
    }

    fn hidden((): &(), name: &str) -> Option<(&'static str, Option<String>)> {
        let why = "what records of tracefs do not say (they say tid, cpu_id, preemptible, \
                   need_reschedule and interruptible)";
        ftrace::context::Context::named(name).is_none().then_some((why, None))
    }

    fn withheld(staged: &Staged) -> Vec<Option<&'static str>> {
        let why = "what tracefs does not give";
        let withheld = |is_given: bool| (!is_given).then_some(why);
        ftrace::filter::gives(staged).into_iter().map(withheld).collect()
    }
}
