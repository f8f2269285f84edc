//! Application contexts of a program: its events have them besides their fields, while they are
//! set.

use std::thread;

trackway::context! {
    /// The request that a thread serves.
    static REQUEST_ID: u64 = myapp, request_id;
}
trackway::context!(static USER: str = myapp, user);
trackway::context!(static LOAD: f32 = myapp, load);
trackway::context!(static DELTA: i8 = myapp, delta);

fn record_step(number: u32) {
    trackway::event!(myapp, step, INFO, number = number);
}

fn main() {
    record_step(0);
    {
        let _request = REQUEST_ID.enter(7);
        record_step(1);
        {
            let _other = REQUEST_ID.enter(8);
            let _user = USER.enter("alice");
            record_step(2);
        }
        record_step(3);
        thread::spawn(|| record_step(4)).join().expect("it ends");
    }
    record_step(5);
    LOAD.set(0.5);
    DELTA.set(-1);
    USER.set("01234567890123456789012345678901");
    record_step(6);
    LOAD.clear();
    USER.set("ends here\0, not there");
    record_step(7);
}
