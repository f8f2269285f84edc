//! What tracing costs on this machine: adapters for tracers, interleaved runs, results.
