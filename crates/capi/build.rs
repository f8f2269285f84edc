//! Link options of libtrackway.so.

fn main() {
    // The SONAME's number is `TRACKWAY_ABI_VERSION`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtrackway.so.1");
    // Never unloaded: see the crate's head.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    // Without std no other crate links the C library. The loader must relocate it first, even if a
    // program links this library last: otherwise its functions that are chosen at load time crash.
    println!("cargo:rustc-cdylib-link-arg=-lc");
    println!("cargo:rerun-if-changed=build.rs");
}
