//! Switching of kernel events on and off while other events are recorded.
//!
//! An event keeps its id and its loss counter as long as it is recorded into the same trace. A word
//! in the buffers switches all programs of an event off at once; the programs are removed when the
//! kernel has detached them. An event is switched on by a new program with a new version, which the
//! word selects once everything is in place. The buffers have counters for [`super::EVENTS_SPARE`]
//! events that were not selected at the beginning.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem;

use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::Event;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_session::FilterSpec;

use super::load::LoadedEventProgram;
use super::{AttachedEventProgram, BpfRecording, PreparedBpf, RecordedEvent, detach, load};
use crate::error::RecordError;
use crate::kernel::error::{kernel_error, kernel_io_error};
use crate::kernel::filters::KernelFilters;
use crate::kernel::selection::{name_of, select_events};
use crate::kernel::{omitted_fields, value_names};
use crate::notices::Notices;
use crate::window::cpus;

impl BpfRecording {
    /// Records only the events that `patterns` select. Returns the number of added and of removed
    /// events. With `filters`, replaces all filters from now on. On failure nothing has changed.
    /// Calls `meanwhile` repeatedly during the work.
    pub(crate) fn select(
        &mut self,
        patterns: &[String],
        filters: Option<&[FilterSpec]>,
        meanwhile: &mut dyn FnMut(),
        notices: &Notices,
    ) -> Result<(usize, usize), RecordError> {
        // Raise the limit again: it may have been changed since the recorder started.
        let _ = trackway_sys::process::raise_descriptor_limit();
        let catalogue = Catalogue::open()?;
        let events = select_events(&catalogue, patterns)?;
        let gone = self.kernel.recorded_except(&events);
        let numbered = self.kernel.number_events(&events)?;
        let with_tracepoint = |(_, event): &&(usize, &Event)| self.kernel.has_tracepoint(event);
        load::check_open_files_limit(numbered.iter().filter(with_tracepoint))?;
        self.extend_filters(&numbered, catalogue.btf())?;
        let known = self.kernel.events.len();
        let mut refiltered = Vec::new();
        let mut before = None;
        if let Some(filters) = filters {
            let (asked, events) =
                self.kernel.compile_filters(filters, &numbered, &gone, &catalogue)?;
            before = Some(mem::replace(&mut self.kernel.filters, asked));
            refiltered = events;
        }
        let declared = self.declare_events(&numbered, catalogue.btf());
        let attached = declared.and_then(|()| {
            self.kernel.attach_all(&numbered, &catalogue, meanwhile)?;
            self.kernel.attach_new_versions(&refiltered, catalogue.btf(), meanwhile)?;
            self.write_field_remarks()
        });
        let numbers: Vec<usize> = numbered.iter().map(|&(number, _)| number).collect();
        let mut changed: Vec<usize> = refiltered.iter().map(|&(number, _)| number).collect();
        changed.extend(&numbers);
        if let Err(error) = attached {
            self.kernel.detach_unused(&changed);
            if let Some(before) = before {
                self.kernel.filters = before;
            }
            return Err(error);
        }
        if !self.is_stopped {
            // Count first, by the filters that applied until now.
            self.kernel.count_missed_except(&changed);
        }
        self.kernel.switch_programs(&changed, &gone);
        changed.extend(&gone);
        self.kernel.detach_unused(&changed);
        let PreparedBpf { events, filters, .. } = &mut self.kernel;
        for (number, known) in events.iter_mut().enumerate() {
            known.is_filtered = filters.has(number);
        }
        self.kernel.has_all_calls &= self.kernel.records_all_calls(&catalogue);
        omitted_fields::report_omitted_fields(self.kernel.omitted_fields(known), notices);
        Ok((numbers.len(), gone.len()))
    }

    /// Returns the number of events that are recorded.
    pub(crate) fn events_on(&self) -> usize {
        self.kernel.events.iter().filter(|event| event.is_on).count()
    }

    /// Applies the session's filters to events that were not recorded before.
    fn extend_filters(
        &mut self,
        numbered: &[(usize, &Event)],
        btf: Option<&Btf>,
    ) -> Result<(), RecordError> {
        let kernel = &mut self.kernel;
        let known = kernel.events.len();
        let new: Vec<&Event> =
            numbered.iter().filter(|(number, _)| *number >= known).map(|&(_, one)| one).collect();
        let mut filters = mem::take(&mut kernel.filters);
        let made = filters.extend(known, &new, |event| kernel.plan_event(event, btf, true));
        kernel.filters = filters;
        made
    }

    /// Returns the filters on the recorded kernel events.
    pub(crate) const fn filters(&self) -> &KernelFilters {
        &self.kernel.filters
    }

    /// Declares events before any occurs, so that readers find all declarations. From then on each
    /// event keeps its number, even when it is switched off: no number is used twice.
    fn declare_events(
        &mut self,
        numbered: &[(usize, &Event)],
        btf: Option<&Btf>,
    ) -> Result<(), RecordError> {
        let mut declared = Vec::new();
        for &(number, event) in numbered {
            if number < self.kernel.events.len() {
                continue;
            }
            let staged = self.kernel.plan_event(event, btf, false);
            let meanings = value_names::meanings_of_event(&staged);
            self.kernel.buffers.set_version(number, None);
            self.kernel.events.push(RecordedEvent {
                name: name_of(event),
                description: staged.description.clone(),
                meanings: meanings.clone(),
                empty: staged.unknown_fields().map(str::to_owned).collect(),
                left_out: staged.omitted_fields,
                is_filtered: self.kernel.filters.has(number),
                call: None,
                is_on: false,
                version: 0,
                recording: 0,
                missed: 0,
                missed_lost: 0,
            });
            declared.push((number as u32, meanings, staged.description));
        }
        let written = self.thread.run(move |drainer| {
            let metadata = &mut drainer.trace.metadata;
            for (id, meanings, event) in &declared {
                metadata.declare_event_with_meanings(0, *id, event, meanings);
            }
            metadata.write()
        })?;
        written.map_err(|error| kernel_io_error("cannot write kernel events", error))
    }

    /// Names empty and unrecorded fields in the trace, before events with such fields occur.
    fn write_field_remarks(&self) -> Result<(), RecordError> {
        let remarks = self.kernel.env_remarks();
        let written = self.thread.run(move |drainer| {
            for (key, fields) in &remarks {
                drainer.trace.metadata.replace_field_list(key, fields);
            }
            drainer.trace.metadata.write()
        })?;
        written.map_err(|error| kernel_io_error("cannot write kernel events", error))
    }
}

impl PreparedBpf {
    /// Returns the numbers of recorded events that are not in `events`.
    fn recorded_except(&self, events: &[Event]) -> Vec<usize> {
        let names: BTreeSet<EventName> = events.iter().map(name_of).collect();
        let numbered = self.events.iter().enumerate();
        let gone = numbered.filter(|(_, known)| known.is_on && !names.contains(&known.name));
        gone.map(|(number, _)| number).collect()
    }

    /// Returns the events that are not recorded now, each with its number. New events get numbers
    /// after all others.
    fn number_events<'a>(
        &self,
        events: &'a [Event],
    ) -> Result<Vec<(usize, &'a Event)>, RecordError> {
        let known: BTreeMap<&EventName, usize> =
            self.events.iter().enumerate().map(|(number, known)| (&known.name, number)).collect();
        let mut next = self.events.len();
        let mut numbered = Vec::new();
        for event in events {
            match known.get(&name_of(event)) {
                Some(&number) if self.events[number].is_on => {}
                Some(&number) => numbered.push((number, event)),
                None => {
                    numbered.push((next, event));
                    next += 1;
                }
            }
        }
        if next > self.buffers.layout().events() {
            let why = "too many events have come since this session began: begin another one";
            return Err(kernel_error("cannot record more kernel events", why));
        }
        Ok(numbered)
    }

    /// Attaches programs that record nothing yet. On failure, some programs may be attached.
    fn attach_all(
        &mut self,
        numbered: &[(usize, &Event)],
        catalogue: &Catalogue,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), RecordError> {
        for &(number, event) in numbered {
            meanwhile();
            // Use a new version: a program of the old version may still be attached.
            self.events[number].version += 1;
            let made = self.load_event(number, event, catalogue.btf())?;
            self.attach_event(number, event, made)?;
        }
        self.attach_calls()
    }

    /// Compiles these filters for all known events and for the numbered events. Also returns the
    /// events that stay recorded but whose filters change.
    fn compile_filters(
        &self,
        filters: &[FilterSpec],
        numbered: &[(usize, &Event)],
        gone: &[usize],
        catalogue: &Catalogue,
    ) -> Result<(KernelFilters, Vec<(usize, Event)>), RecordError> {
        let known = self.events.len();
        let mut names: Vec<EventName> =
            self.events.iter().map(|event| event.name.clone()).collect();
        let new = numbered.iter().filter(|(number, _)| *number >= known);
        names.extend(new.map(|&(_, event)| name_of(event)));
        let all = catalogue.events(&names).events;
        if all.len() != names.len() {
            let why = "some of those that were recorded are not there any more";
            return Err(kernel_error("cannot filter the kernel's events", why));
        }
        let staged = |event: &Event| self.plan_event(event, catalogue.btf(), true);
        let shared = self.filters.accepted().shared();
        let with = (self.buffers.cpus(), catalogue.btf());
        let asked = KernelFilters::new((filters, shared), &all, staged, with)?;
        let is_other = |(number, _): &(usize, Event)| {
            let is_on = self.events.get(*number).is_some_and(|known| known.is_on);
            is_on && !gone.contains(number) && (self.filters.has(*number) || asked.has(*number))
        };
        let refiltered = all.into_iter().enumerate().filter(is_other).collect();
        Ok((asked, refiltered))
    }

    /// Attaches new programs of recorded events, beside the programs that still record them. On
    /// failure, some new programs may be attached.
    fn attach_new_versions(
        &mut self,
        refiltered: &[(usize, Event)],
        btf: Option<&Btf>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), RecordError> {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let mut without = Vec::new();
        for (number, event) in refiltered {
            meanwhile();
            // A system call has one program at a time, which the next program replaces in one step.
            // Do that last, when nothing else can fail.
            let is_call = !self.has_tracepoint(event);
            self.events[*number].version += u32::from(!is_call);
            let made = self.load_event(*number, event, btf)?;
            if is_call && matches!(made.program, LoadedEventProgram::None) {
                without.push(*number);
            }
            let list = if is_call { &mut last } else { &mut first };
            list.push((*number, event, made));
        }
        // A dispatcher may have had no program so far, since filters passed none of its calls.
        for (_, _, made) in &last {
            if let (LoadedEventProgram::Call(_, slot), Some(calls)) =
                (&made.program, &mut self.calls)
            {
                calls.side(slot.phase).is_used = true;
            }
        }
        self.attach_calls()?;
        let mut made = first.into_iter().chain(last);
        made.try_for_each(|(number, event, made)| self.attach_event(number, event, made))?;
        // The former programs stay attached, and record no more. Change versions only once no step
        // can fail: a call's next program records only if its version is the selected one, and it
        // replaces the program that records.
        for number in without {
            self.events[number].version += 1;
        }
        Ok(())
    }

    /// Switches events to their latest programs, and others off, on all CPUs. Either the earlier or
    /// the later program records an event in between, never both or neither: a thread that runs on
    /// each CPU does the switch there.
    fn switch_programs(&mut self, on: &[usize], off: &[usize]) {
        let numbers = on.iter().map(|&number| (number, true));
        let numbers: Vec<(usize, bool)> =
            numbers.chain(off.iter().map(|&number| (number, false))).collect();
        for &(number, is_on) in &numbers {
            let known = &mut self.events[number];
            known.is_on = is_on;
            known.recording = known.version;
        }
        let tell = |cpu: usize, is_gap: bool| {
            for &(number, is_on) in &numbers {
                let version = self.events[number].version;
                self.buffers.set_version_on(cpu, number, (is_on && !is_gap).then_some(version));
            }
        };
        let mut refiltered: BTreeSet<usize> = (0..self.buffers.cpus()).collect();
        cpus::visit_all_with(|cpu| {
            tell(cpu as usize, false);
            refiltered.remove(&(cpu as usize));
        });
        // On CPUs where this process may not run (cpuset(7)), neither version records for a moment;
        // on CPUs that run no thread that does not matter.
        if refiltered.is_empty() {
            return;
        }
        refiltered.iter().for_each(|&cpu| tell(cpu, true));
        super::drain::wait_for_running_programs();
        refiltered.iter().for_each(|&cpu| tell(cpu, false));
    }

    /// Removes the programs of these events that record nothing any more, without waiting.
    fn detach_unused(&mut self, numbers: &[usize]) {
        let numbers: HashSet<usize> = numbers.iter().copied().collect();
        for &number in &numbers {
            if self.events.get(number).is_none_or(|known| known.is_on) {
                continue;
            }
            if let (Some(slot), Some(calls)) = (self.events[number].call, &self.calls) {
                calls.remove(slot);
            }
        }
        let events = &self.events;
        let records = |number: usize, version: u32| {
            events.get(number).is_some_and(|known| known.is_on && known.recording == version)
        };
        let goes = |one: &mut AttachedEventProgram| {
            let version = one.version;
            one.event.is_some_and(|event| numbers.contains(&event) && !records(event, version))
        };
        detach::detach_in_background(self.attached.extract_if(.., goes).collect());
    }

    /// Returns true if missed events may belong to threads or CPUs that are not recorded: if only
    /// some are recorded, most missed events do. For an event with filters, the number that would
    /// have passed is unknown, too.
    pub(super) fn records_only_some(&self) -> bool {
        self.scope.is_some() || self.is_of_cpus
    }

    /// Counts the program runs that the kernel skipped since the latest check.
    pub(super) fn count_missed(&mut self) {
        let is_of_some = self.records_only_some();
        for one in self.attached.iter_mut() {
            let now = one.attached.missed_runs().unwrap_or(one.missed);
            let more = now.saturating_sub(one.missed);
            one.missed = now;
            match one.event.and_then(|event| self.events.get_mut(event)) {
                Some(event) => {
                    event.missed += more;
                    // Count by the present filters: earlier counts keep their class.
                    if !is_of_some && !event.is_filtered {
                        event.missed_lost += more;
                    }
                }
                None => self.missed_of_none += more,
            }
        }
    }

    /// Counts missed events, except those of the latest programs of `numbers`, which begin now.
    fn count_missed_except(&mut self, numbers: &[usize]) {
        let numbers: HashSet<usize> = numbers.iter().copied().collect();
        let events = &self.events;
        for one in self.attached.iter_mut() {
            let is_latest = |event: usize| events[event].version == one.version;
            if one.event.is_some_and(|event| numbers.contains(&event) && is_latest(event)) {
                one.missed = one.attached.missed_runs().unwrap_or(one.missed);
            }
        }
        self.count_missed();
    }

    /// Skips the missed events so far: they were not to be recorded.
    pub(super) fn skip_missed(&mut self) {
        for one in self.attached.iter_mut() {
            one.missed = one.attached.missed_runs().unwrap_or(one.missed);
        }
    }
}
