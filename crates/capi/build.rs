//! Link options of libtrackway.so.

fn main() {
    // The SONAME's number is `TRACKWAY_ABI_VERSION`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtrackway.so.1");
    // Never unloaded: see the crate's head.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rerun-if-changed=build.rs");
}
