//! Details of a trace, as text for people and as JSON for programs.

use trackway_ctf::read::Trace;
use trackway_render::{push_details, push_details_json};

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 8; align = 8; signed = true; encoding = UTF8; } := c8;
typealias integer { size = 64; align = 8; map = clock.mono.value; } := time;
trace {
    major = 1; minor = 8; byte_order = le;
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    packet.header := struct { integer { size = 32; align = 8; base = 16; } magic; u8 uuid[16]; };
};
env { hostname = "a\nhost"; n = -3; n = 4; };
clock { name = mono; description = "A clock"; freq = 1000; offset_s = 17; offset = 500; };
stream {
    id = 3;
    packet.context := struct { time timestamp_begin; u8 cpu_id; };
    event.header := struct { u8 id; time t; };
    event.context := struct { integer { size = 32; align = 8; signed = true; } _vtid; };
};
event { name = "app:one"; id = 10; stream_id = 3; loglevel = 12; fields := struct { }; };
event {
    name = "app:all";
    id = 7;
    stream_id = 3;
    context := struct { string s; };
    fields := struct {
        integer { size = 16; align = 8; byte_order = be; base = 8; } o;
        floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f;
        u8 _n;
        c8 text[_n];
        u8 grid[2][3];
        enum : c8 { small = -1, large = 3 ... 9 } tag;
        variant <tag> { u8 small; struct { c8 name[4]; } large; } v;
        struct { u8 x; } parts[2];
    };
};
"#;

const TEXT: &str = r"trace a/folder
  uuid 00010203-0405-0607-0809-0a0b0c0d0e0f
  environment
    hostname  a\nhost
    n         -3
    n         4
  clock mono: 1,000 Hz, its zero is at 17.500000000 s, A clock
  packet header  { hex u32 magic; u8 uuid[16]; }
  stream class 3, clock mono
    packet context  { u64 timestamp_begin; u8 cpu_id; }
    event header  { u8 id; u64 t; }
    event context  { i32 vtid; }
    2 event classes
      10  app:one  DEBUG_FUNCTION  { }
       7  app:all                  context { string s; }  @
";

const FIELDS: &str = "{ be oct u16 o; f32 f; u8 n; char text[n]; u8 grid[2][3]; \
    enum i8 { small = -1, large = 3 ... 9 } tag; \
    variant <tag> { u8 small; struct { char name[4]; } large; } v; struct { u8 x; } parts[2]; }";

#[test]
fn details_read_as_intended() {
    let trace = Trace::parse(METADATA.as_bytes()).expect("metadata");
    let mut out = Vec::new();
    push_details(&mut out, "a/folder", &trace);
    let text = String::from_utf8(out).expect("UTF-8");
    let expected = TEXT.replace('@', FIELDS);
    assert!(text == expected, "instead of what is expected:\n{text}\n{expected}");
}

#[test]
fn details_are_json_for_programs() {
    let trace = Trace::parse(METADATA.as_bytes()).expect("metadata");
    let mut out = Vec::new();
    push_details_json(&mut out, "a/folder", &trace);
    let parsed: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(parsed["uuid"], "00010203-0405-0607-0809-0a0b0c0d0e0f");
    assert_eq!(parsed["environment"], serde_json::json!({ "hostname": "a\nhost", "n": 4 }));
    let clock = serde_json::json!({
        "name": "mono", "uuid": null, "description": "A clock",
        "frequency": 1000, "precision": 1, "zero_ns": 17_500_000_000_u64,
    });
    assert_eq!(parsed["clocks"], serde_json::json!([clock]));
    let stream = &parsed["streams"][0];
    assert_eq!(stream["clock"], "mono");
    let event = &stream["events"][1];
    assert_eq!((&event["id"], &event["name"]), (&7.into(), &"app:all".into()));
    assert_eq!(event["level"], serde_json::Value::Null);
    let fields = event["fields"].as_array().expect("an array");
    assert_eq!(fields.len(), 8);
    assert_eq!(fields[4]["name"], "grid");
    assert_eq!(fields[4]["declaration"], "u8 grid[2][3]");
}
