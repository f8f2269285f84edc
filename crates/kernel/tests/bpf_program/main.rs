//! Tests recording of kernel events: the kernel records into our buffers, and the tests read them.

mod arguments;
mod contexts;
mod decode;
mod filters;
mod recording;
