//! Loads the library that its argument names, calls it, and unloads it, three times.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStringExt;

fn main() {
    let path = std::env::args_os().nth(1).expect("a library");
    let path = CString::new(path.into_vec()).expect("a path");
    for number in 0..3 {
        trackway::event!(host, loading, INFO, number = number);
        // SAFETY: the library is the example `plugin`; no pointer into it is used after it is
        // unloaded.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "the library can be loaded");
            let run = libc::dlsym(library, c"plugin_run".as_ptr());
            assert!(!run.is_null(), "the library is the plugin");
            let run = std::mem::transmute::<*mut c_void, extern "C" fn(u32)>(run);
            run(number);
            libc::dlclose(library);
        }
    }
}
