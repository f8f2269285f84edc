//! Tests that each have a separate machine: another kernel under an emulator, or systemd in
//! namespaces.

mod kernels;
mod systemd;
