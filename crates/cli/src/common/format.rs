//! Values of options that several commands share.

use clap::ValueEnum;

/// Form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Values of `--kernel-backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Programs that the kernel runs (BPF), into buffers of ours
    Bpf,
    /// A private instance of tracefs, converted
    Tracefs,
}

impl From<Backend> for trackway_recorder::KernelBackend {
    fn from(way: Backend) -> Self {
        match way {
            Backend::Bpf => Self::Bpf,
            Backend::Tracefs => Self::Tracefs,
        }
    }
}
