//! Kernel events, recorded by the kernel into our buffers, and read there.

mod decode;
mod filters;
mod here;
