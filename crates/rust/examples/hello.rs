//! A program with events: `trackway record -- target/debug/examples/hello`.
#![forbid(unsafe_code)]

fn main() {
    for number in 0..3_u32 {
        trackway::event!(myapp, request, INFO, path = "/index.html", status = 200 + number);
    }
    trackway::event!(myapp, done, NOTICE);
}
