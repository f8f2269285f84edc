//! Events of the kernel switched on and off while others are recorded.
//!
//! An event keeps its id and the place where its losses are counted for as long as it is recorded
//! into the same trace: off is only that its program goes. There is room for so many that were not
//! there from the beginning ([`super::EVENTS_SPARE`]).

use std::mem;

use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::Event;

use super::{Attachment, Draining, Kernel, detach, failed, load, name_of, selected};
use crate::kernel_filters::KernelFilters;
use crate::{RecordError, kernel_meanings};

impl Draining {
    /// Records the events that these patterns select, and no others: how many are new, and how many
    /// have gone. If that cannot be, nothing has changed. `meanwhile` is called every now and then.
    pub(crate) fn select(
        &mut self,
        patterns: &[String],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(usize, usize), RecordError> {
        // Here, too: it may be long after the limit was another one.
        let _ = trackway_sys::process::raise_descriptor_limit();
        let catalogue = Catalogue::open()?;
        let events = selected(&catalogue, patterns)?;
        let kernel = &mut self.kernel;
        let known = |kernel: &Kernel, event: &Event| {
            kernel.events.iter().position(|known| known.name == name_of(event))
        };
        let is_on =
            |event: &&Event| known(kernel, event).is_some_and(|number| kernel.events[number].is_on);
        let new: Vec<&Event> = events.iter().filter(|event| !is_on(event)).collect();
        let gone: Vec<usize> = (0..kernel.events.len())
            .filter(|&number| {
                let event = &kernel.events[number];
                event.is_on && !events.iter().any(|other| name_of(other) == event.name)
            })
            .collect();
        // Each with its number, those that were never recorded behind all others.
        let mut next = kernel.events.len();
        let numbered: Vec<(usize, &Event)> = new
            .into_iter()
            .map(|event| {
                let number = known(kernel, event).unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                (number, event)
            })
            .collect();
        if next > kernel.buffers.layout().events() {
            let why = "too many events have come since this session began: begin another one";
            return Err(failed("cannot record more kernel events", why));
        }
        load::check_limit(numbered.iter().filter(|(_, event)| kernel.has_tracepoint(event)))?;
        self.filter(&numbered, catalogue.btf())?;
        self.declare(&numbered, catalogue.btf())?;
        let kernel = &mut self.kernel;
        for (place, &(number, event)) in numbered.iter().enumerate() {
            meanwhile();
            let made = kernel.make(number, event, catalogue.btf());
            if let Err(error) = made.and_then(|made| kernel.record(number, event, made)) {
                let begun = numbered[..place].iter().map(|&(number, _)| number).collect();
                kernel.switch_off(begun, self.is_stopped);
                return Err(error);
            }
        }
        kernel.attach_calls()?;
        let (more, fewer) = (numbered.len(), gone.len());
        kernel.switch_off(gone, self.is_stopped);
        Ok((more, fewer))
    }

    /// How many events are recorded.
    pub(crate) fn events_on(&self) -> usize {
        self.kernel.events.iter().filter(|event| event.is_on).count()
    }

    /// Has events that were never recorded asked what the session's filters ask.
    fn filter(
        &mut self,
        numbered: &[(usize, &Event)],
        btf: Option<&Btf>,
    ) -> Result<(), RecordError> {
        let kernel = &mut self.kernel;
        let known = kernel.events.len();
        let new: Vec<&Event> =
            numbered.iter().filter(|(number, _)| *number >= known).map(|&(_, one)| one).collect();
        let mut filters = mem::take(&mut kernel.filters);
        let made = filters.extend(known, &new, |event| kernel.staged(event, btf, true));
        kernel.filters = filters;
        made
    }

    /// What its events are asked.
    pub(crate) const fn filters(&self) -> &KernelFilters {
        &self.kernel.filters
    }

    /// Declares events before there are any, so that readers know all that they find.
    fn declare(&self, numbered: &[(usize, &Event)], btf: Option<&Btf>) -> Result<(), RecordError> {
        let declared: Vec<_> = numbered
            .iter()
            .map(|&(number, event)| {
                let staged = self.kernel.staged(event, btf, false);
                (number as u32, kernel_meanings::of(&staged), staged.description)
            })
            .collect();
        let written = self.ask(move |drainer| {
            let metadata = &mut drainer.trace.metadata;
            for (id, meanings, event) in &declared {
                metadata.declare_meaning(0, *id, event, meanings);
            }
            metadata.write()
        })?;
        written.map_err(|error| failed("cannot write kernel events", error))
    }
}

impl Kernel {
    /// Takes the programs of these events away.
    fn switch_off(&mut self, numbers: Vec<usize>, is_stopped: bool) {
        if !is_stopped {
            self.count_missed();
        }
        for &number in &numbers {
            self.events[number].is_on = false;
            if let (Some((call, phase)), Some(calls)) = (self.events[number].call, &mut self.calls)
            {
                calls.side(phase).programs.remove(call);
            }
        }
        let goes = |one: &mut Attachment| one.event.is_some_and(|event| numbers.contains(&event));
        detach::detach_beside(self.attached.extract_if(.., goes).collect());
    }

    /// Counts what the kernel passed over since the latest look.
    pub(super) fn count_missed(&mut self) {
        for one in self.attached.iter_mut() {
            let now = one.attached.missed().unwrap_or(one.missed);
            let more = now.saturating_sub(one.missed);
            one.missed = now;
            match one.event.and_then(|event| self.events.get_mut(event)) {
                Some(event) => event.missed += more,
                None => self.missed_of_none += more,
            }
        }
    }

    /// Passes over that: nothing was to be recorded.
    pub(super) fn pass_missed(&mut self) {
        for one in self.attached.iter_mut() {
            one.missed = one.attached.missed().unwrap_or(one.missed);
        }
    }
}
