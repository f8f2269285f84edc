//! Evaluators of filters on kernel events: BPF programs, or the recorder with tracefs.

use trackway_kernel::bpf_program::contexts::FilterContexts;
use trackway_kernel::bpf_program::filter::{Filter, FilterError, FilterMaps};
use trackway_kernel::bpf_program::plan::{EventPlan, Step};
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::tracefs;
use trackway_session::{FilterSource, FilterSpec};

/// A filter compiled for an event by one of the backends.
pub(crate) trait CompiledFilter: Sized {
    /// State that all filters share.
    type Memory: std::fmt::Debug;

    /// Creates the state of these filters, for `cpus` CPUs and a kernel with the types of `btf`.
    fn create_memory(
        cpus: usize,
        filters: &[FilterSpec],
        btf: Option<&Btf>,
    ) -> std::io::Result<Self::Memory>;

    /// Compiles the filter object with this number for an event; `None` if the event lacks a field
    /// of the filter.
    fn compile_object(
        object: &[u8],
        number: usize,
        staged: &EventPlan,
        memory: &mut Self::Memory,
    ) -> Result<Option<Self>, FilterError>;

    /// Checks that an event can have all of these filters at once.
    fn check_combination(_all: &[Self]) -> Result<(), FilterError> {
        Ok(())
    }

    /// Returns the reason why a kernel context is unavailable: the context's description, and the
    /// cause, if known.
    fn missing_context(memory: &Self::Memory, name: &str)
    -> Option<(&'static str, Option<String>)>;

    /// Returns, for each field of an event, the reason why filters cannot use it, or `None`.
    fn unusable_fields(staged: &EventPlan) -> Vec<Option<&'static str>>;

    /// Returns true if a filter may be unable to read this field, and then passes the event.
    fn may_be_unknown(_staged: &EventPlan, _field: &str) -> bool {
        false
    }
}

impl CompiledFilter for Filter {
    type Memory = FilterMaps;

    fn create_memory(
        cpus: usize,
        filters: &[FilterSpec],
        btf: Option<&Btf>,
    ) -> std::io::Result<FilterMaps> {
        let is_in =
            |text: &[u8], name: &str| text.windows(name.len()).any(|part| part == name.as_bytes());
        let may_be_asked = |name: &str| {
            filters.iter().any(|filter| match &filter.source {
                FilterSource::Expression(text) => is_in(text.as_bytes(), name),
                FilterSource::Object(object) => is_in(&object.bytes, name),
                _ => true,
            })
        };
        FilterMaps::new(cpus, filters.len(), FilterContexts::find(btf, may_be_asked))
    }

    fn compile_object(
        object: &[u8],
        number: usize,
        staged: &EventPlan,
        memory: &mut FilterMaps,
    ) -> Result<Option<Self>, FilterError> {
        Self::new(object, number, staged, memory)
    }

    fn check_combination(all: &[Self]) -> Result<(), FilterError> {
        Self::check_steps(all)
    }

    fn missing_context(memory: &FilterMaps, name: &str) -> Option<(&'static str, Option<String>)> {
        let hidden = memory.contexts().missing(name)?;
        Some(("what this kernel does not show", Some(hidden.to_string())))
    }

    fn unusable_fields(staged: &EventPlan) -> Vec<Option<&'static str>> {
        let why = "what is not in this kernel's record";
        let withheld = |step: &Step| matches!(step, Step::Zeros(_)).then_some(why);
        staged.steps.iter().map(withheld).collect()
    }

    fn may_be_unknown(staged: &EventPlan, field: &str) -> bool {
        staged.may_be_unknown(field)
    }
}

impl CompiledFilter for tracefs::filter::Filter {
    type Memory = ();

    fn create_memory(_: usize, _: &[FilterSpec], _: Option<&Btf>) -> std::io::Result<()> {
        Ok(())
    }

    fn compile_object(
        object: &[u8],
        number: usize,
        staged: &EventPlan,
        (): &mut (),
    ) -> Result<Option<Self>, FilterError> {
        Self::new(object, number, staged)
    }

    fn missing_context((): &(), name: &str) -> Option<(&'static str, Option<String>)> {
        let why = "what records of tracefs do not say (they say tid, cpu_id, preemptible, \
                   need_reschedule and interruptible)";
        tracefs::contexts::Context::find_by_name(name).is_none().then_some((why, None))
    }

    fn unusable_fields(staged: &EventPlan) -> Vec<Option<&'static str>> {
        let why = "what tracefs does not give";
        let withheld = |is_given: bool| (!is_given).then_some(why);
        tracefs::filter::available_fields(staged).into_iter().map(withheld).collect()
    }
}
