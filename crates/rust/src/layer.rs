//! A layer for `tracing_subscriber`, which works beside other layers.
//!
//! The layer has no filter: a per-layer filter with changing results costs more than it saves. The
//! registry creates the span in any case (`FilterMap::any_enabled` of tracing-subscriber 0.3), and
//! looks it up for the filter at each event of the span.

use tracing_core::Subscriber;
use tracing_core::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer as TracingLayer};
use tracing_subscriber::registry::LookupSpan;

use crate::callsite::Callsite;
use crate::runtime;

/// Returns a layer that records all spans and events that a recorder requests. Without
/// libtrackway.so, returns `None`, which `tracing_subscriber` treats as no layer.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(trackway::layer()).init();
/// tracing::info!(rows = 3_u64, "loaded");
/// ```
///
/// Other layers, such as `tracing_subscriber::fmt`, work beside this layer and are not affected.
/// The function calls [`Options::layer`] with the default options, which suit most programs.
pub fn layer() -> Option<Layer> {
    Options::new().layer()
}

/// Options of a [`layer`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    enters: bool,
}

impl Options {
    /// Creates options to record events, and the beginnings and ends of spans.
    pub const fn new() -> Self {
        Self { enters: false }
    }

    /// Sets if each entry and exit of a span is recorded, too: for async programs, in which a span
    /// may be idle between its beginning and its end.
    pub const fn enters(mut self, yes: bool) -> Self {
        self.enters = yes;
        self
    }

    /// Returns a layer with these options, or `None` without libtrackway.so.
    pub fn layer(self) -> Option<Layer> {
        runtime::find_register_function().map(|_| Layer { options: self })
    }
}

/// A layer that [`layer`] creates.
#[derive(Debug)]
pub struct Layer {
    options: Options,
}

impl Layer {
    /// Returns the callsite of a span.
    #[inline(always)]
    fn callsite_of<S>(id: &Id, context: &Context<'_, S>) -> Option<&'static Callsite>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        Callsite::find(context.metadata(id)?)
    }
}

impl<S> TracingLayer<S> for Layer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_event(&self, event: &tracing_core::Event<'_>, context: Context<'_, S>) {
        let Some(callsite) = Callsite::find_or_add(event.metadata()) else { return };
        callsite.record_event(event, || match event.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if event.is_contextual() => context.lookup_current().map(|it| it.id().into_u64()),
            None => None,
        });
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(callsite) = Callsite::find_or_add(attributes.metadata()) else { return };
        callsite.record_begin(attributes, id.into_u64(), || match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if attributes.is_contextual() => {
                context.lookup_current().map(|it| it.id().into_u64())
            }
            None => None,
        });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(callsite) = Self::callsite_of(id, &context) {
            callsite.record(record, id.into_u64());
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if self.options.enters
            && let Some(callsite) = Self::callsite_of(id, &context)
        {
            callsite.record_enter(id.into_u64());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if self.options.enters
            && let Some(callsite) = Self::callsite_of(id, &context)
        {
            callsite.record_exit(id.into_u64());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if let Some(callsite) = Self::callsite_of(&id, &context) {
            callsite.record_end(id.into_u64());
        }
    }
}
