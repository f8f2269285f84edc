//! Tests that each have a machine of their own: another kernel under an emulator, or systemd in
//! namespaces.

mod kernels;
mod systemd;
