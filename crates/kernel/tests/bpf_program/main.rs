//! Kernel events, recorded by the kernel into our buffers, and read there.

mod arguments;
mod contexts;
mod decode;
mod filters;
mod recording;
