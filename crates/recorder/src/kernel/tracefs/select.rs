//! Switching and filtering of kernel events while others are recorded by tracefs.
//!
//! An event keeps its number in the trace, however often it is switched. If it is off, the kernel
//! just writes no more records of it; records from before are still converted.

use std::io;
use std::sync::Arc;

use trackway_kernel::catalogue::model::Event;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_kernel::tracefs::convert::{Converter, plan_event};
use trackway_kernel::tracefs::filter::Filter;
use trackway_session::FilterSpec;

use super::drain::TracefsDrain;
use super::{TracefsRecording, add_event, as_str_pairs, field_remarks, report_missing_data};
use crate::error::RecordError;
use crate::kernel::drain_thread::unwritten_events_error;
use crate::kernel::error::kernel_error;
use crate::kernel::filters::KernelFilters;
use crate::kernel::{bpf, omitted_fields, selection, value_names};
use crate::notices::Notices;

/// Compiled filters for all known events and for new events.
struct EventFilters {
    filters: KernelFilters<Filter>,
    /// Events by their index in [`TracefsRecording::events`], then new events.
    events: Vec<Event>,
}

/// Former filters, kept so that they can be restored.
struct SavedFilters {
    filters: KernelFilters<Filter>,
    converter: Arc<Converter>,
    can_be: Vec<bool>,
}

impl TracefsRecording {
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
        let catalogue = Catalogue::open()?;
        let events = selection::select_tracefs_events(&catalogue, patterns)?;
        let is_known = |event: &&Event| {
            let name = selection::name_of(event);
            self.events.iter().any(|known| known.name == name)
        };
        let new: Vec<&Event> = events.iter().filter(|event| !is_known(event)).collect();
        let event_filters =
            filters.map(|filters| self.compile_filters(filters, &new, &catalogue)).transpose()?;
        if !new.is_empty() {
            self.add_events(&new, notices)?;
        }
        let mut before = None;
        if let Some(event_filters) = event_filters {
            self.add_unconvertible_events(&event_filters.events, notices)?;
            before = Some(self.replace_filters(event_filters)?);
        }
        if filters.is_some() || !new.is_empty() {
            self.filters.accepted().report(notices);
        }
        let switched = self.enable_only(&events, meanwhile);
        if let (Err(_), Some(before)) = (&switched, before) {
            self.restore_filters(before);
        }
        switched
    }

    /// Enables only these events in the kernel. Returns the number of added and of removed events.
    fn enable_only(
        &mut self,
        events: &[Event],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(usize, usize), RecordError> {
        let mut changed: Vec<usize> = Vec::new();
        for (number, known) in self.events.iter().enumerate() {
            let is_selected = events.iter().any(|event| selection::name_of(event) == known.name);
            let is_wanted = is_selected && known.can_be;
            if is_wanted == known.is_on {
                continue;
            }
            meanwhile();
            if let Err(error) = self.shared.instance.set_event_enabled(&known.name, is_wanted) {
                for known in changed.iter().map(|&number| &self.events[number]) {
                    let _ = self.shared.instance.set_event_enabled(&known.name, known.is_on);
                }
                return Err(error.into());
            }
            changed.push(number);
        }
        let (mut more, mut fewer) = (0, 0);
        for number in changed {
            let known = &mut self.events[number];
            known.is_on = !known.is_on;
            *if known.is_on { &mut more } else { &mut fewer } += 1;
        }
        Ok((more, fewer))
    }

    /// Compiles these filters for all known events and for new events.
    fn compile_filters(
        &self,
        filters: &[FilterSpec],
        new: &[&Event],
        catalogue: &Catalogue,
    ) -> Result<EventFilters, RecordError> {
        let known = self.events.iter().map(|known| known.name.clone());
        let names: Vec<EventName> =
            known.chain(new.iter().map(|event| selection::name_of(event))).collect();
        let events = catalogue.events(&names).events;
        if events.len() != names.len() {
            let why = "some of those that were recorded are not there any more";
            return Err(kernel_error("cannot filter the kernel's events", why));
        }
        let as_staged = |event: &Event| plan_event(event, bpf::PAYLOAD_BYTES_MAX);
        let cpus = crate::window::cpus::online_cpus().len().max(1);
        let shared = self.filters.accepted().shared();
        let filters = KernelFilters::new((filters, shared), &events, as_staged, (cpus, None))?;
        Ok(EventFilters { filters, events })
    }

    /// Replaces the filters of all known events, from now on.
    fn replace_filters(
        &mut self,
        event_filters: EventFilters,
    ) -> Result<SavedFilters, RecordError> {
        let EventFilters { mut filters, events } = event_filters;
        let mut converter = self.converter.without_filters();
        let can_be = self.events.iter().map(|known| known.can_be).collect();
        let known = self.events.iter_mut().take(events.len());
        for (at, known) in known.enumerate() {
            let of_event = filters.take_filters(at);
            known.can_be = of_event.is_some() && known.number.is_some();
            if let Some(number) = known.number {
                converter.set_filters(number, of_event);
            }
        }
        let asks = Arc::new(converter);
        let turns = Arc::clone(&asks);
        self.was_filtered |= self.converter.has_filters();
        let before = SavedFilters {
            filters: std::mem::replace(&mut self.filters, filters),
            converter: std::mem::replace(&mut self.converter, asks),
            can_be,
        };
        if let Err(error) = self.thread.run(move |drainer| drainer.replace_filters(turns)) {
            self.restore_filters(before);
            return Err(error);
        }
        Ok(before)
    }

    fn restore_filters(&mut self, before: SavedFilters) {
        (self.filters, self.converter) = (before.filters, before.converter);
        for (known, can_be) in self.events.iter_mut().zip(before.can_be) {
            known.can_be = can_be;
        }
        let event_filters = Arc::clone(&self.converter);
        // A thread that has ended filters no more records.
        let _ = self.thread.run(move |drainer| drainer.output.restore_filters(event_filters));
    }

    /// Adds more events to the converter, the filters and the metadata, before any of them occurs.
    fn add_events(&mut self, new: &[&Event], notices: &Notices) -> Result<(), RecordError> {
        let known = self.events.len();
        let as_staged = |event: &Event| plan_event(event, bpf::PAYLOAD_BYTES_MAX);
        self.filters.extend(known, new, as_staged)?;
        let mut converter = Converter::clone(&self.converter);
        let filters = (known..).map(|number| self.filters.take_filters(number)).take(new.len());
        let filters: Vec<_> = filters.collect();
        let added = new.iter().zip(filters).map(|(event, of)| add_event(&mut converter, event, of));
        let added: Vec<_> = added.collect();
        let written = self.install_converter(converter, notices)?;
        self.events.extend(added);
        written.map_err(unwritten_events_error)
    }

    /// Adds the events whose records could not be converted, since they lacked a former filter's
    /// fields. No record of them passes until they have filters.
    fn add_unconvertible_events(
        &mut self,
        all: &[Event],
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let mut converter = Converter::clone(&self.converter);
        let mut added = Vec::new();
        for (at, (event, known)) in all.iter().zip(&self.events).enumerate() {
            if known.number.is_none() && event.id.is_some() {
                let number = converter.add(event, Vec::new());
                number.into_iter().for_each(|number| converter.set_filters(number, None));
                added.push((at, number));
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        let written = self.install_converter(converter, notices)?;
        for (at, number) in added {
            self.events[at].number = number;
        }
        written.map_err(unwritten_events_error)
    }

    /// Installs a converter with more events than the previous one, and declares the new events.
    /// The inner result reports if the declarations were written; the events are known in any case.
    fn install_converter(
        &mut self,
        converter: Converter,
        notices: &Notices,
    ) -> Result<io::Result<()>, RecordError> {
        let before = &*self.converter;
        let (left_out, empty) = (before.missing_events.len(), before.empty_fields.len());
        report_missing_data(
            &converter.missing_events[left_out..],
            &converter.empty_fields[empty..],
            notices,
        );
        let left_out = &converter.omitted_fields[before.omitted_fields.len()..];
        omitted_fields::report_omitted_fields(as_str_pairs(left_out), notices);
        let remarks = field_remarks(&converter);
        let first = before.descriptions().len();
        let converter = Arc::new(converter);
        let turns = Arc::clone(&converter);
        let written = self.thread.run(move |drainer: &mut TracefsDrain| {
            drainer.output.extend(Arc::clone(&turns));
            let metadata = &mut drainer.output.trace.metadata;
            let events = turns.descriptions().iter().zip(turns.meanings());
            for (id, (event, meanings)) in (0..).zip(events).skip(first) {
                let meanings = value_names::meanings_of_fields(meanings);
                metadata.declare_event_with_meanings(0, id, event, &meanings);
            }
            for (key, fields) in &remarks {
                metadata.replace_field_list(key, fields);
            }
            metadata.write()
        })?;
        self.converter = converter;
        Ok(written)
    }
}
