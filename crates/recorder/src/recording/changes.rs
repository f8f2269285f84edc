//! Changes of a session while it records: stops and starts, clears, new channels, other buffers,
//! ends (docs/design/0007-sessions.md).

use std::fs;
use std::io;
use std::path::Path;

use trackway_session::FilterSpec;
use trackway_sys::clock::monotonic_ns;

use crate::error::RecordError;
use crate::recording::Recording;
use crate::recording::channel::{self, Channel, DrainEnd};
use crate::trace::folder::TraceFolder;
use crate::window::settings::ChannelSettings;
use crate::window::{cpus, slot};

impl Recording {
    /// Adds a channel with streams of `class`, a class that no channel has used before. Admits
    /// writers unless the session is paused.
    pub fn add_channel(
        &mut self,
        settings: &ChannelSettings,
        class: u32,
    ) -> Result<(), RecordError> {
        let mut channel = self.make_channel(settings, class, None)?;
        channel.activate();
        self.channels.push(channel);
        Ok(())
    }

    /// Makes a channel that replaces the one of class `old` for all later records. No record is
    /// lost or recorded twice. The caller must still end the old channel.
    pub fn replace_channel(
        &mut self,
        old: u32,
        settings: &ChannelSettings,
        class: u32,
    ) -> Result<(), RecordError> {
        let place = self.place_of(old)?;
        // Without rules: until the old channel hands over its enable bits, no event may have both
        // bits.
        let ruleless = ChannelSettings { rules: String::new(), ..settings.clone() };
        let mut channel = self.make_channel(&ruleless, class, Some(place))?;
        if let Err(error) = channel.compile_filters_for(&self.handle, &settings.rules) {
            channel.free_unused_slot(&self.handle);
            return Err(error);
        }
        channel.activate_in_place_of(&self.channels[place], &settings.rules);
        self.channels.push(channel);
        Ok(())
    }

    /// Makes a channel that admits no writers yet; readers find its streams. The new channel may
    /// replace an existing one.
    fn make_channel(
        &mut self,
        settings: &ChannelSettings,
        class: u32,
        place: Option<usize>,
    ) -> Result<Channel, RecordError> {
        let session = self.session.as_ref().ok_or(RecordError::Lost("it is only recovered"))?;
        let before = place.map(|place| &self.channels[place]);
        let mut channel = Channel::build(&self.handle, session, settings, class, before)?;
        self.publish_clock_to(&channel);
        channel.begin_at(monotonic_ns());
        self.trace.metadata.declare_class(class, &channel.contexts);
        if let Err(error) = self.trace.metadata.write() {
            channel.free_unused_slot(&self.handle);
            return Err(RecordError::io("write", self.trace.channel.path())(error));
        }
        Ok(channel)
    }

    /// Ends the channel of class `class` and writes its buffers to the trace. If the write fails,
    /// leaves the buffers for `trackway recover`.
    pub fn end_channel(&mut self, class: u32) -> Result<(), RecordError> {
        let place = self.place_of(class)?;
        let mut ending = vec![self.channels.remove(place)];
        let exclusion = channel::exclude_writers(self.handle.window(), &mut ending);
        let (Some(mut channel), Some(&exclusion)) = (ending.pop(), exclusion.first()) else {
            return Ok(());
        };
        let (trace, buffer) = (&mut self.trace, &mut self.buffer);
        let taken = match self.drops_flight_recorders && channel.is_overwriting() {
            true => Ok(DrainEnd::Complete),
            false => channel.drain_remaining(&self.handle, trace, buffer, &|| false),
        };
        self.ended.add(channel.summary(&self.handle));
        match taken {
            Ok(DrainEnd::Complete) => channel.free_slot_and_memory(&self.handle, exclusion),
            Ok(DrainEnd::Interrupted) | Err(_) => {
                self.has_left_behind = true;
                channel.slot.abandon();
            }
        }
        taken.map(|_| ())
    }

    /// Sets the event rules of the channel of class `class`.
    pub fn set_rules(&mut self, class: u32, rules: &str) -> Result<(), RecordError> {
        let place = self.place_of(class)?;
        let channel = &mut self.channels[place];
        channel.compile_filters_for(&self.handle, rules)?;
        channel.slot.set_rules(&channel.layout, rules);
        Ok(())
    }

    /// Sets the filters of the channel of class `class`.
    pub fn set_filters(&mut self, class: u32, filters: &[FilterSpec]) -> Result<(), RecordError> {
        let place = self.place_of(class)?;
        self.channels[place].set_filters(&self.handle, filters)
    }

    /// Sets the process rules of the channel of class `class`, in the form of
    /// `trackway_schema::ProcessRules`.
    pub fn set_processes(&self, class: u32, rules: &str) -> Result<(), RecordError> {
        let channel = &self.channels[self.place_of(class)?];
        channel.slot.set_processes(rules);
        // Enables events registered by processes that the old rules excluded.
        slot::enable_selected(self.handle.window(), &channel.layout);
        Ok(())
    }

    /// Sets how long programs that allow blocking wait for buffer space, in the channel of class
    /// `class`.
    pub fn set_blocking(&self, class: u32, time_ns: u64) -> Result<(), RecordError> {
        self.channels[self.place_of(class)?].slot.set_blocking(time_ns);
        Ok(())
    }

    /// Excludes writers from all channels until [`Self::start`] and writes their records to the
    /// trace. Flight recorders keep their records.
    pub fn stop(&mut self) -> Result<(), RecordError> {
        self.check_window()?;
        self.pause();
        for channel in self.channels.iter_mut().filter(|channel| !channel.is_overwriting()) {
            channel.poll();
            channel.drain(&self.handle, &mut self.trace, true, &mut self.buffer)?;
        }
        Ok(())
    }

    /// Excludes writers, and waits for active ones.
    fn pause(&mut self) {
        let window = *self.handle.window();
        self.channels.iter().for_each(|channel| channel.slot.pause());
        // One visit of the CPUs serves all channels: no earlier sequence is alive afterwards.
        cpus::visit_all();
        for channel in &mut self.channels {
            slot::clear_bits(&window, channel.slot.index);
            channel.wait_for_writers(&window);
        }
    }

    /// Admits writers to all channels.
    pub fn start(&mut self) {
        self.channels.iter().for_each(|channel| channel.slot.resume(&channel.layout));
    }

    /// Discards the recorded events in the buffers and in the streams of the trace. Admits writers
    /// afterwards if `record` is set.
    pub fn clear(&mut self, record: bool) -> Result<(), RecordError> {
        self.check_window()?;
        self.pause();
        self.ended.forget_counts();
        // Recovery reads this mark if the recorder is killed.
        let mark = self.trace.facts_folder().map(|facts| facts.join(CLEARING));
        let _ = mark.as_ref().map(|mark| fs::write(mark, ""));
        // Channels go first, so that none writes to a removed file even if removing files fails. A
        // channel with records to write creates its stream file again.
        let window = *self.handle.window();
        self.channels.iter_mut().for_each(|channel| channel.forget(&window));
        let cleared = remove_streams(&self.trace.channel)
            .map_err(RecordError::io("remove what is in", self.trace.channel.path()));
        let _ = mark.map(fs::remove_file);
        if record {
            self.start();
        }
        cleared
    }

    fn place_of(&self, class: u32) -> Result<usize, RecordError> {
        let place = self.channels.iter().position(|channel| channel.names.class == class);
        place.ok_or(RecordError::Lost("it has no such channel"))
    }
}

/// Removes the files of all streams in a channel folder, also those of ended channels.
pub(crate) fn remove_streams(channel: &TraceFolder) -> io::Result<()> {
    let folder = channel.current_path()?;
    let is_stream = |name: &str| name != "metadata" && !name.starts_with('.');
    remove_files(&folder, &is_stream)?;
    remove_files(&folder.join("index"), &|_| true)
}

/// Name of the marker file beside a trace's calibrations; it exists while the trace is cleared.
const CLEARING: &str = "clearing";

/// Removes the mark of a trace that was being cleared when its recorder was killed. Returns true if
/// there was a mark.
pub(crate) fn was_cleared(facts: &Path) -> bool {
    fs::remove_file(facts.join(CLEARING)).is_ok()
}

/// Removes the files in a folder whose names `is_such` accepts.
fn remove_files(folder: &Path, is_such: &dyn Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_such = entry.file_name().to_str().is_some_and(is_such);
        if is_such && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
