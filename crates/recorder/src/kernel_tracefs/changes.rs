//! Events of the kernel switched on and off while others are recorded by tracefs.
//!
//! An event keeps its number in the trace, however often it is switched: off is only that the
//! kernel writes no more of it. Records that it wrote before are turned all the same.

use std::sync::Arc;

use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::model::Event;
use trackway_kernel::ftrace::convert::{Converter, staged};

use super::{Draining, add, empty_fields, say_what_is_missing};
use crate::kernel_thread::unwritten;
use crate::report::Notices;
use crate::{RecordError, kernel, kernel_meanings};

impl Draining {
    /// Records the events that these patterns select, and no others: how many are new, and how many
    /// have gone. If that cannot be, nothing has changed. `meanwhile` is called every now and then.
    pub(crate) fn select(
        &mut self,
        patterns: &[String],
        meanwhile: &mut dyn FnMut(),
        notices: &Notices,
    ) -> Result<(usize, usize), RecordError> {
        let events = kernel::selected(&Catalogue::open()?, patterns)?;
        let is_known = |event: &&Event| {
            let name = kernel::name_of(event);
            self.events.iter().any(|known| known.name == name)
        };
        let new: Vec<&Event> = events.iter().filter(|event| !is_known(event)).collect();
        if !new.is_empty() {
            self.know(&new, notices)?;
        }
        let mut changed: Vec<usize> = Vec::new();
        for (number, known) in self.events.iter().enumerate() {
            let is_selected = events.iter().any(|event| kernel::name_of(event) == known.name);
            let is_wanted = is_selected && known.can_be;
            if is_wanted == known.is_on {
                continue;
            }
            meanwhile();
            if let Err(error) = self.shared.instance.switch(&known.name, is_wanted) {
                for known in changed.iter().map(|&number| &self.events[number]) {
                    let _ = self.shared.instance.switch(&known.name, known.is_on);
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

    /// Has records of more events turned, asked about, and declared before there are any.
    fn know(&mut self, new: &[&Event], notices: &Notices) -> Result<(), RecordError> {
        let known = self.events.len();
        let as_staged = |event: &Event| staged(event, kernel::PAYLOAD_BYTES_MAX);
        self.filters.extend(known, new, as_staged)?;
        let before = &*self.converter;
        let mut converter = Converter::clone(before);
        let filters = (known..).map(|number| self.filters.take(number)).take(new.len());
        let filters: Vec<_> = filters.collect();
        let added = new.iter().zip(filters).map(|(event, of)| add(&mut converter, event, of));
        let added: Vec<_> = added.collect();
        let (left_out, empty) = (before.left_out.len(), before.empty.len());
        say_what_is_missing(&converter.left_out[left_out..], &converter.empty[empty..], notices);
        self.filters.taken().say(notices);
        let (old, new) = (empty_fields(before), empty_fields(&converter));
        let remark = |fields: &str| format!("trackway_empty_fields = \"{fields}\"");
        let (old, new) = (remark(&old), remark(&new));
        let first = before.descriptions().len();
        let converter = Arc::new(converter);
        let turns = Arc::clone(&converter);
        let written = self.thread.ask(move |drainer| {
            drainer.output.extend(Arc::clone(&turns));
            let metadata = &mut drainer.output.trace.metadata;
            let events = turns.descriptions().iter().zip(turns.meanings());
            for (id, (event, meanings)) in (0..).zip(events).skip(first) {
                let meanings = kernel_meanings::of_fields(meanings);
                metadata.declare_meaning(0, id, event, &meanings);
            }
            metadata.reword(&old, &new);
            metadata.write()
        })?;
        self.converter = converter;
        self.events.extend(added);
        written.map_err(unwritten)
    }
}
