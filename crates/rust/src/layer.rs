//! A layer for `tracing_subscriber`, which works beside others.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::layer::{Context, Filter, Layer as TracingLayer};
use tracing_subscriber::registry::LookupSpan;

use crate::callsite::Callsite;
use crate::runtime;

/// A layer that records all spans and events that a recorder asks for.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(trackway::layer()).init();
/// tracing::info!(rows = 3_u64, "loaded");
/// ```
///
/// Other layers, such as `tracing_subscriber::fmt`, work beside it and are not affected. It is
/// [`Options::layer`] of the options that most programs want.
pub fn layer<S>() -> Filtered<Layer, WhenOn, S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    Options::new().layer()
}

/// What a [layer](layer) records.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    enters: bool,
}

impl Options {
    /// Events, and beginnings and ends of spans.
    pub const fn new() -> Self {
        Self { enters: false }
    }

    /// Whether to record each time that a span is entered and exited, too: for async programs, in
    /// which a span may be idle between its beginning and its end.
    pub const fn enters(mut self, yes: bool) -> Self {
        self.enters = yes;
        self
    }

    /// A layer that does so.
    pub fn layer<S>(self) -> Filtered<Layer, WhenOn, S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        Layer { options: self }.with_filter(WhenOn)
    }
}

/// The layer; made by [`layer`].
#[derive(Debug)]
pub struct Layer {
    options: Options,
}

/// Lets pass what a recorder asks for at the time, so that spans which nobody wants are not even
/// made. Without libtrackway.so it lets nothing pass, for good.
#[derive(Debug)]
pub struct WhenOn;

impl<S> Filter<S> for WhenOn {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if runtime::registrar().is_none() {
            return Interest::never();
        }
        Callsite::find_or_add(metadata);
        // Not `always`: events are switched on and off without this process knowing.
        Interest::sometimes()
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        // One that is not known is not a callsite's, but somebody's question.
        Callsite::find(metadata).is_none_or(Callsite::may_be_on)
    }
}

impl Layer {
    /// The callsite of a span.
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
        Callsite::find_or_add(event.metadata()).event(event, || match event.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if event.is_contextual() => context.lookup_current().map(|it| it.id().into_u64()),
            None => None,
        });
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let callsite = Callsite::find_or_add(attributes.metadata());
        callsite.begin(attributes, id.into_u64(), || match attributes.parent() {
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
            callsite.enter(id.into_u64());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if self.options.enters
            && let Some(callsite) = Self::callsite_of(id, &context)
        {
            callsite.exit(id.into_u64());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if let Some(callsite) = Self::callsite_of(&id, &context) {
            callsite.end(id.into_u64());
        }
    }
}
