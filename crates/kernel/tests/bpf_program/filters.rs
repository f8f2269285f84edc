//! Tests filters in programs of events: the kernel's verifier must accept every filter that users
//! can write for kernel events.

#[path = "../../../filter/tests/filter/case.rs"]
#[allow(dead_code, reason = "the cases' own test uses more of it")]
mod case;
#[path = "../../../filter/tests/filter/event.rs"]
#[allow(dead_code, reason = "as above")]
mod event;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use trackway_filter::compile::compile;
use trackway_filter::layout::{Layout as Kinds, Member, Type};
use trackway_kernel::bpf_program::arguments::raw_tracepoint_type;
use trackway_kernel::bpf_program::attach::LoadedProgram;
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::codegen::{EventNumber, ProgramMaps, generate_filtered_program};
use trackway_kernel::bpf_program::contexts::{Context, FilterContexts};
use trackway_kernel::bpf_program::filter::{Filter, FilterError, FilterMaps, STEPS_MAX};
use trackway_kernel::bpf_program::layout::BufferLayout;
use trackway_kernel::bpf_program::plan::{DataSource, EventPlan, RegisterLayout, Step};
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::btf::Class;
use trackway_kernel::catalogue::model::{Location, Phase, Source};
use trackway_schema::{EventDescription, Field, FieldKind};
use trackway_testkit::report_skipped;

/// Returns the fields that a filter can read.
pub(crate) fn filter_layout(plan: &EventPlan) -> Kinds {
    let field = |field: &Field| Member { name: field.name.clone(), of: Type::from(&field.kind) };
    Kinds {
        event: plan.description.name.clone(),
        fields: plan.description.fields.iter().map(field).collect(),
        contexts: filterable_contexts(),
        applications: Vec::new(),
    }
}

fn filterable_contexts() -> Vec<Member> {
    let context = |context: Context| Member {
        name: context.name.into(),
        of: context.scalar().map_or(Type::String, Type::from),
    };
    Context::filterable().map(context).collect()
}

/// Buffers and maps to test programs; `None`: BPF is not available, which is reported.
struct FilterBench {
    buffers: Buffers,
    memory: FilterMaps,
}

impl FilterBench {
    fn new() -> Option<Self> {
        let layout = BufferLayout::new(16, 2, 1).expect("a layout");
        let made = Buffers::new(layout, 1, BufferMode::Discard).and_then(|buffers| {
            let catalogue = Catalogue::open().ok();
            let btf = catalogue.as_ref().and_then(Catalogue::btf);
            let memory = FilterMaps::new(1, 1, FilterContexts::find(btf, |_| true))?;
            Ok(Self { buffers, memory })
        });
        made.map_err(|error| report_skipped(format!("BPF is not available: {error}"))).ok()
    }

    /// Prepares the filter of this text for an event.
    fn filter(&mut self, text: &str, plan: &EventPlan) -> Result<Filter, FilterError> {
        let compiled = compile(text, &filter_layout(plan)).unwrap_or_else(|error| {
            panic!("{}: {}", plan.description.name, error.render(text));
        });
        let object = compiled.into_object().encode().expect("an object");
        let filter = Filter::new(&object, 0, plan, &mut self.memory)?;
        Ok(filter.unwrap_or_else(|| panic!("{}: {text}: it has it", plan.description.name)))
    }

    /// Loads an event's program with these filters.
    fn load_program(
        &self,
        plan: &EventPlan,
        filters: &[Filter],
        btf_id: Option<u32>,
    ) -> Result<(), String> {
        let maps = ProgramMaps { buffers_fd: self.buffers.map_fd(), scope: None };
        let code = generate_filtered_program(
            plan,
            self.buffers.layout(),
            maps,
            EventNumber { id: 1000, index: 0 },
            filters,
        );
        let code = code.expect("it fits");
        let loaded = match btf_id {
            Some(btf_id) => LoadedProgram::load_raw(&code, btf_id),
            None => LoadedProgram::load(&code),
        };
        loaded.map(drop).map_err(|error| error.to_string())
    }
}

/// Returns expressions on an event's first integer, first text and first sequence that exist before
/// the event is recorded, and on a context.
fn build_expressions(bench: &mut FilterBench, plan: &EventPlan) -> Vec<String> {
    let fields = &plan.description.fields;
    let mut first = |is_it: &dyn Fn(&FieldKind) -> bool, asks: &dyn Fn(&str) -> String| {
        let names = fields.iter().filter(|field| is_it(&field.kind)).map(|field| &field.name);
        let mut names = names.filter(|name| {
            !matches!(bench.filter(&asks(name), plan), Err(FilterError::MissingField(..)))
        });
        names.next().cloned()
    };
    let is_integer =
        |kind: &FieldKind| matches!(kind, FieldKind::Scalar(_) | FieldKind::Enumeration(..));
    let integer = first(&is_integer, &|name| format!("{name} > 5"));
    let is_text = |kind: &FieldKind| matches!(kind, FieldKind::Str);
    let text = first(&is_text, &|name| format!("{name} == \"x\""));
    let is_list = |kind: &FieldKind| matches!(kind, FieldKind::Array(..) | FieldKind::Sequence(_));
    let list = first(&is_list, &|name| format!("length({name}) > 5"));
    let mut all = Vec::new();
    if let Some(integer) = integer {
        all.push(format!("({integer} > 5 && {integer} % 3 == 1 || changed({integer}))"));
    }
    if let Some(text) = text {
        all.push(format!("({text} == \"/etc/*\" || {text} == \"*b*c*\" || {text} in (\"x\"))"));
    }
    if let Some(list) = list {
        all.push(format!("(any({list} > 7) || {list}[0] == 3)"));
    }
    // Each event uses one context; neighbouring events use different contexts.
    let is_there = |of: &Context| bench.memory.contexts().missing(of.name).is_none();
    let contexts: Vec<Context> = Context::filterable().filter(is_there).collect();
    let sum: usize = plan.description.name.bytes().map(usize::from).sum();
    let context = contexts[sum % contexts.len()];
    all.push(match context.scalar() {
        Some(_) => format!("$ctx.{} > 5", context.name),
        None => format!("$ctx.{} == \"*b*\"", context.name),
    });
    all
}

/// Returns an expression on the pointees of a system call; `None`: the call has none.
fn pointee_expression(plan: &EventPlan) -> Option<String> {
    let is_behind = |(_, step): &(&Field, &Step)| {
        step.reads_user_memory() || matches!(step, Step::PartOfPrevious | Step::Incomplete)
    };
    let fields = plan.description.fields.iter().zip(&plan.steps).filter(is_behind);
    let asks = |(Field { name, kind }, step): (&Field, &Step)| match (kind, step) {
        (FieldKind::Str | FieldKind::Text, _) => format!("{name} == \"*b*c\""),
        (FieldKind::Strings, Step::UserTexts(_)) => format!("{name}[2] == \"b*\""),
        (FieldKind::Strings, _) => format!("{name}[0] != \"*c\""),
        (FieldKind::Array(..) | FieldKind::Sequence(_), _) => {
            format!("(any({name} > 7) || {name}[0] == 3 || length({name}) > 1)")
        }
        _ => format!("({name} > 5 || {name} == 1)"),
    };
    // An expression on more than twelve fields would exceed the verifier's limit.
    let parts: Vec<String> = fields.take(12).map(asks).collect();
    (!parts.is_empty()).then(|| parts.join(" && "))
}

/// RUN the program of every event of this kernel through its verifier, with filters on the first
/// integer, text and sequence: in one filter, or in several; for system calls, also with a filter
/// on pointees. EXPECT that the verifier accepts all.
#[test]
fn the_kernel_takes_a_filter_on_every_event() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(mut bench) = FilterBench::new() else { return };
    let call_id = |phase| {
        let name = match phase {
            Phase::Enter => "btf_trace_sys_enter",
            Phase::Exit => "btf_trace_sys_exit",
        };
        Some(catalogue.btf()?.find(Class::Typedef, name)?.id)
    };
    let registers = catalogue.btf().and_then(RegisterLayout::find);
    let events = catalogue.events(catalogue.names()).events;
    let (mut taken, mut asked, mut calls, mut pointing) = (0, 0, 0, 0);
    for event in events.iter().filter(|event| event.id.is_some()) {
        let plan = EventPlan::from_record(event, 3000);
        let all = build_expressions(&mut bench, &plan);
        let whole = bench.filter(&all.join(" && "), &plan).expect("the kernel does it");
        let parts: Vec<Filter> =
            all.iter().map(|text| bench.filter(text, &plan).expect("the kernel does it")).collect();
        let name = event.full_name();
        // A program with several filters takes long to load and is rare: every eighth event has
        // one.
        bench
            .load_program(&plan, &[whole], None)
            .unwrap_or_else(|why| panic!("{name}: {all:?}: {why}"));
        if taken % 8 == 0 {
            bench.load_program(&plan, &parts, None).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        (taken, asked) = (taken + 1, asked + all.len());
        let Source::Syscall { phase, .. } = event.source else { continue };
        let Some((registers, btf_id)) = registers.as_ref().zip(call_id(phase)) else { continue };
        let Some(plan) = EventPlan::from_registers(event, registers, 3000) else { continue };
        let text = build_expressions(&mut bench, &plan).join(" && ");
        let filter = bench.filter(&text, &plan).expect("the kernel does it");
        let loaded = bench.load_program(&plan, &[filter], Some(btf_id));
        loaded.unwrap_or_else(|why| panic!("{name}: {text}: {why}"));
        calls += 1;
        let Some(text) = pointee_expression(&plan) else { continue };
        let filter = bench.filter(&text, &plan).expect("the kernel does it");
        let loaded = bench.load_program(&plan, &[filter], Some(btf_id));
        loaded.unwrap_or_else(|why| panic!("{name}: {text}: {why}"));
        pointing += 1;
    }
    println!("{taken} events, {asked} parts of filters, {calls} calls from their registers");
    println!("{pointing} calls with something behind pointers");
    assert!(taken > 100 && asked > 2 * taken, "{taken} {asked}");
    assert!(calls > 100 && pointing > 100 || registers.is_none(), "{calls} {pointing}");
}

/// RUN the programs that read arguments through the kernel's verifier, with a filter on each field
/// of an event. EXPECT that the verifier accepts all.
#[test]
fn the_kernel_takes_filters_that_ask_for_arguments() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let Some(mut bench) = FilterBench::new() else { return };
    let mut asked = 0;
    for event in catalogue.events(catalogue.names()).events {
        let Some(plan) = EventPlan::from_arguments(&event, btf, 3000) else { continue };
        let fields = plan.description.fields.iter().map(|Field { name, kind }| match kind {
            FieldKind::Str => format!("{name} == \"*b*c\""),
            _ => format!("({name} > 5 || {name} == 1)"),
        });
        // With more than twelve fields, the verifier would exceed its step limit.
        let parts: Vec<String> = fields.take(12).collect();
        let text = parts.join(" && ");
        let filter = bench.filter(&text, &plan).expect("the kernel does it");
        let loaded = bench.load_program(&plan, &[filter], raw_tracepoint_type(&event, btf));
        loaded.unwrap_or_else(|why| panic!("{}: {text}: {why}", event.full_name()));
        asked += parts.len();
    }
    println!("{asked} fields");
    assert!(asked > 300, "{asked}");
}

/// Returns the plan of a kernel event with these fields; `None`: kernel events cannot have them.
fn build_plan(layout: &Kinds) -> Option<EventPlan> {
    let known = filterable_contexts();
    if !layout.applications.is_empty()
        || layout.contexts.iter().any(|context| !known.contains(context))
    {
        return None;
    }
    let mut offset = 8;
    let mut plan = EventPlan {
        data_source: DataSource::Tracepoint,
        description: EventDescription {
            provider: String::new(),
            name: layout.event.clone(),
            level: 0,
            fields: Vec::new(),
        },
        contexts: trackway_kernel::bpf_program::contexts::Contexts::default(),
        meanings: Vec::new(),
        threads: Vec::new(),
        structures: Vec::new(),
        call: None,
        unread_threads: None,
        steps: Vec::new(),
        omitted_fields: Vec::new(),
        guard: None,
        version: 0,
    };
    let scalar_of = |of: &Type| match of {
        Type::Integer(integer) => integer.scalar,
        _ => None,
    };
    // Kernel events have no elements with labels.
    let element_of = |of: &Type| match of {
        Type::Integer(integer) if integer.labels.is_empty() => integer.scalar,
        _ => None,
    };
    for member in &layout.fields {
        let (kind, step, size) = match &member.of {
            Type::String => (FieldKind::Str, Step::DynamicText(offset, Location::Absolute), 4),
            Type::Array(of, count) => {
                let (scalar, count) = (element_of(of)?, u16::try_from(*count).ok()?);
                let size = scalar.size_bytes() as u32 * u32::from(count);
                (FieldKind::Array(scalar, count), Step::Copy { offset, size }, size)
            }
            Type::Sequence(of) => {
                let scalar = element_of(of)?;
                let step =
                    Step::DynamicArray(offset, Location::Relative, scalar.size_bytes() as u32);
                (FieldKind::Sequence(scalar), step, 4)
            }
            of => {
                let scalar = scalar_of(of)?;
                let Type::Integer(integer) = of else { return None };
                let kind = match &integer.labels[..] {
                    [] => FieldKind::Scalar(scalar),
                    labels => FieldKind::Enumeration(scalar, labels.to_vec()),
                };
                let size = scalar.size_bytes() as u32;
                (kind, Step::Copy { offset, size }, size)
            }
        };
        offset = (offset + size).next_multiple_of(4);
        plan.description.fields.push(Field { name: member.name.clone(), kind });
        plan.steps.push(step);
    }
    Some(plan)
}

/// RUN each case of the filter language whose event could be a kernel event through the kernel's
/// verifier. EXPECT that it accepts all.
#[test]
fn the_kernel_takes_every_case_of_the_language() {
    let Some(mut bench) = FilterBench::new() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filter/cases");
    let mut cases = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the cases").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            cases.insert(name, case::parse_case(&fs::read_to_string(path).expect("a case")));
        }
    }
    let (mut taken, mut unlike, mut unfit) = (0, 0, Vec::new());
    for (name, case) in cases.iter().filter(|(_, case)| case.error.is_none()) {
        let Some(plan) = build_plan(&case.event.layout) else {
            unlike += 1;
            continue;
        };
        match bench.filter(&case.filter, &plan) {
            Ok(filter) => bench
                .load_program(&plan, &[filter], None)
                .unwrap_or_else(|why| panic!("{name}: {}: {why}", case.filter)),
            Err(FilterError::Unsupported(_)) => {
                unfit.push(name.as_str());
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        taken += 1;
    }
    println!("{taken} cases; {unlike} that the kernel has nothing for; unfit: {unfit:?}");
    assert!(taken >= 120, "{taken} were taken");
    assert!(unfit.iter().all(|name| name.starts_with("float_")), "{unfit:?}");
}

/// RUN a filter on a field that is computed only when the event is recorded. EXPECT an error, not
/// an event that is never recorded. EXPECT no filter if the event lacks a field, or has one of
/// another kind.
#[test]
fn fields_read_too_late_are_reported() {
    let Some(mut bench) = FilterBench::new() else { return };
    let text = Member { name: "name".into(), of: Type::String };
    let event = Kinds { event: "event".into(), fields: vec![text], ..Kinds::default() };
    let mut plan = build_plan(&event).expect("a text is nothing special");
    let object = |text: &str| {
        compile(text, &filter_layout(&plan))
            .expect("a filter")
            .into_object()
            .encode()
            .expect("an object")
    };
    let (asked, other) = (object("name == \"x\""), object("$ctx.procname == \"x\""));
    let mut is_for = |object: &[u8], plan: &EventPlan| {
        Filter::new(object, 0, plan, &mut bench.memory).map(|filter| filter.is_some())
    };
    assert!(is_for(&asked, &plan).expect("a text"));
    plan.steps = vec![Step::Register { offset: 0, size: 8 }];
    let error = is_for(&asked, &plan).expect_err("it has it, and not yet");
    assert!(error.to_string().starts_with("the kernel cannot filter on 'name'"), "{error}");
    assert!(is_for(&other, &plan).expect("of nothing of the event's"));
    plan.description.fields[0].name = "other".into();
    assert!(!is_for(&asked, &plan).expect("it is not there"));
    plan.description.fields[0] =
        Field { name: "name".into(), kind: FieldKind::Scalar(trackway_schema::Scalar::U8) };
    assert!(!is_for(&asked, &plan).expect("it is something else"));
}

/// RUN filters that search as many texts as one event allows, and filters that search one more.
/// EXPECT that the kernel accepts only the first filters, and an error for the others.
#[test]
fn filters_with_too_many_steps_are_refused() {
    let Some(mut bench) = FilterBench::new() else { return };
    let member = |name: &str| Member { name: name.into(), of: Type::String };
    let fields = vec![member("name"), member("other")];
    let event = Kinds { event: "event".into(), fields, ..Kinds::default() };
    let plan = build_plan(&event).expect("texts are nothing special");
    let asks = |count: usize, letters: usize| {
        let found = |number| format!("contains(name, \"{number:0letters$}\")");
        (0..count).map(found).collect::<Vec<_>>().join(" || ")
    };
    // A call counts 16 steps, and a text has 256 bytes. With an automaton, each byte counts one
    // step; otherwise each byte counts eight, and each letter of the pattern twelve.
    for (letters, steps) in [(3, 16 + 256), (64, 16 + 256 * 8 + 64 * 12)] {
        let most = STEPS_MAX as usize / steps;
        let filter = bench.filter(&asks(most, letters), &plan).expect("the kernel does it");
        Filter::check_steps(std::slice::from_ref(&filter)).expect("just as many");
        bench
            .load_program(&plan, std::slice::from_ref(&filter), None)
            .expect("the kernel takes it");
        let one = bench.filter(&asks(1, letters), &plan).expect("the kernel does it");
        let error = Filter::check_steps(&[filter, one]).expect_err("one more");
        assert!(matches!(error, FilterError::Steps(steps) if steps > STEPS_MAX), "{error}");
        let all = (most + 1) * steps;
        let message = format!("filters may take {all} steps; the kernel allows {STEPS_MAX}");
        assert!(error.to_string().ends_with(&message), "{error}");
    }
    let other = bench.filter("contains(name, other)", &plan).expect("the kernel does it");
    Filter::check_steps(std::slice::from_ref(&other)).expect("that is not much");
    bench.load_program(&plan, &[other], None).expect("the kernel takes it");
}
