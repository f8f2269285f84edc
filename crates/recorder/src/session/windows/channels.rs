//! Changes of a session's channels in all of its windows, and for later windows.

use trackway_session::FilterSpec;
use trackway_session::protocol::Refusal;

use super::{FailurePolicy, SessionWindows};
use crate::elf::ProgramInstrumentation;
use crate::error::RecordError;
use crate::filters::check;
use crate::notices::Notices;
use crate::recording::Recording;
use crate::window::settings::ChannelSettings;

impl SessionWindows {
    /// Adds a channel, whose streams are of class `class`.
    pub(crate) fn add_channel(
        &mut self,
        settings: &ChannelSettings,
        class: u32,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        if self.has_no_users() {
            let why = "it records the kernel's events alone, and nothing of programs";
            return Err(RecordError::Refused(Refusal::new(why)));
        }
        if let Some(own) = self.own_recording() {
            let hints = check::check_channel_filters(
                settings,
                own.handle.window(),
                &ProgramInstrumentation::default(),
                |_| false,
            )?;
            hints.iter().for_each(|hint| notices.report(format_args!("{hint}")));
        }
        self.apply_to_each(FailurePolicy::AnyOk, notices, &mut |window| {
            window.recording.add_channel(settings, class)
        })?;
        self.channels.push((settings.clone(), class));
        Ok(())
    }

    /// Creates a channel that replaces the channel of class `old`.
    pub(crate) fn replace_channel(
        &mut self,
        old: u32,
        settings: &ChannelSettings,
        class: u32,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let replaced = self.apply_to_each(FailurePolicy::AnyOk, notices, &mut |window| {
            window.replace_channel(old, settings, class)
        });
        if let Err(error) = replaced {
            // The old channel continues with its own class.
            for window in &mut self.windows {
                window.stuck.remove(&class);
            }
            return Err(error);
        }
        self.channels.push((settings.clone(), class));
        Ok(())
    }

    /// Ends a channel.
    pub(crate) fn end_channel(&mut self, class: u32, notices: &Notices) -> Result<(), RecordError> {
        self.channels.retain(|(_, other)| *other != class);
        self.apply_to_each(FailurePolicy::AllOk, notices, &mut |window| window.end_channel(class))
    }

    /// Changes a channel in place, in each window and for later windows.
    fn change_channel(
        &mut self,
        class: u32,
        notices: &Notices,
        remember: &dyn Fn(&mut ChannelSettings),
        what: &mut dyn FnMut(&mut Recording, u32) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let is_own = self.is_own();
        self.apply_to_each(FailurePolicy::AnyOk, notices, &mut |window| {
            let class = window.class(class);
            // A window that had no space for the channel goes on without it.
            match is_own || window.recording.has_channel(class) {
                true => what(&mut window.recording, class),
                false => Ok(()),
            }
        })?;
        let its = self.channels.iter_mut().filter(|(_, other)| *other == class);
        its.for_each(|(settings, _)| remember(settings));
        Ok(())
    }

    /// Replaces the event rules of a channel.
    pub(crate) fn set_rules(
        &mut self,
        class: u32,
        rules: &str,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let remember = |settings: &mut ChannelSettings| rules.clone_into(&mut settings.rules);
        self.change_channel(class, notices, &remember, &mut |it, class| it.set_rules(class, rules))
    }

    /// Checks filters that a channel does not have yet against the known events of the session's
    /// own user. Other users' events are not known here.
    fn check_new_filters(
        &self,
        class: u32,
        filters: &[FilterSpec],
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let channel = self.channels.iter().find(|(_, other)| *other == class);
        let (Some(own), Some((settings, _))) = (self.own_recording(), channel) else {
            return Ok(());
        };
        let is_new = |filter: &&FilterSpec| !settings.filters.contains(filter);
        let new: Vec<FilterSpec> = filters.iter().filter(is_new).cloned().collect();
        let window = own.handle.window();
        let hints = check::check_filters(
            &new,
            &settings.rules,
            window,
            &ProgramInstrumentation::default(),
        )?;
        hints.iter().for_each(|hint| notices.report(format_args!("{hint}")));
        Ok(())
    }

    /// Replaces the filters of a channel.
    pub(crate) fn set_filters(
        &mut self,
        class: u32,
        filters: &[FilterSpec],
        notices: &Notices,
    ) -> Result<(), RecordError> {
        self.check_new_filters(class, filters, notices)?;
        let remember = |settings: &mut ChannelSettings| settings.filters = filters.to_vec();
        self.change_channel(class, notices, &remember, &mut |it, class| {
            it.set_filters(class, filters)
        })
    }

    /// Replaces the process rules of a channel.
    pub(crate) fn set_processes(
        &mut self,
        class: u32,
        rules: &str,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let remember = |settings: &mut ChannelSettings| rules.clone_into(&mut settings.processes);
        self.change_channel(class, notices, &remember, &mut |it, class| {
            it.set_processes(class, rules)
        })
    }

    /// Sets how long programs that allow blocking wait for space in a channel, in ns.
    pub(crate) fn set_blocking(
        &mut self,
        class: u32,
        time_ns: u64,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let remember = |settings: &mut ChannelSettings| settings.blocking_ns = time_ns;
        self.change_channel(class, notices, &remember, &mut |it, class| {
            it.set_blocking(class, time_ns)
        })
    }
}
