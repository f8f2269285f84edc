//! Filters in restricted C, compiled by clang: accepted, and correct in interpreter and machine
//! code.

mod common;

use std::path::Path;
use std::process::Command;

use common::generate::Dice;
use common::{Input, format_listing, run_both, verify_program};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use trackway_jit::helper::Word;
use trackway_jit::insn::{INSN_BYTES, LDDW_FUNCTION};
use trackway_jit::verify::Rules;
use trackway_testkit::TemporaryFolder;

const SLOTS: usize = 10;

/// A filter in C, and the same function in Rust.
struct Case {
    name: &'static str,
    source: &'static str,
    expected: fn(&[u64]) -> u64,
}

/// Elements of the sequence in slot 9, and bytes of the string in slot 8.
const BYTES: &[u8] = b"GET /index.html";

const CASES: [Case; 14] = [
    Case {
        name: "predicates",
        source: "u64 filter(const u64 *f) {
            return f[0] > 500 && f[1] == 3 && (s64)f[2] < -1 && f[3] != 7 && f[4] & 1 ||
                (f[5] >= 10 && f[5] <= 20) || f[6] == 0x123456789abcdefULL;
        }",
        expected: |f| {
            let many = f[0] > 500 && f[1] == 3 && (f[2] as i64) < -1 && f[3] != 7 && f[4] & 1 != 0;
            u64::from(many || (10..=20).contains(&f[5]) || f[6] == 0x0123_4567_89ab_cdef)
        },
    },
    Case {
        name: "narrow",
        source: "u64 filter(const u64 *f) {
            u32 a = f[0], b = f[1];
            s32 c = f[2], d = f[3];
            u32 rotated = (a << 7) | (a >> 25);
            if (c < d) rotated += b * 3;
            if (a / (b | 1) > 5) rotated ^= a % (b | 1);
            return rotated - (c >> 3) + (u16)f[4] + (s8)f[5] + (s16)f[6];
        }",
        expected: |f| {
            let (a, b, c, d) = (f[0] as u32, f[1] as u32, f[2] as i32, f[3] as i32);
            let mut rotated = a.rotate_left(7);
            if c < d {
                rotated = rotated.wrapping_add(b.wrapping_mul(3));
            }
            if a / (b | 1) > 5 {
                rotated ^= a % (b | 1);
            }
            let sum = rotated.wrapping_sub((c >> 3) as u32).wrapping_add(u32::from(f[4] as u16));
            let sum = sum.wrapping_add(f[5] as i8 as u32).wrapping_add(f[6] as i16 as u32);
            sum.into()
        },
    },
    Case {
        name: "wide",
        source: "u64 filter(const u64 *f) {
            u64 x = f[0] * f[1] + 0xfedcba9876543210ULL;
            x = x << (f[2] & 63) | x >> (f[3] & 63);
            return (s64)x >> 5 ^ x / (f[4] | 1) ^ x % (f[5] | 1) ^ -x;
        }",
        expected: |f| {
            let x = f[0].wrapping_mul(f[1]).wrapping_add(0xfedc_ba98_7654_3210);
            let x = (x << (f[2] & 63)) | (x >> (f[3] & 63));
            (x as i64 >> 5) as u64 ^ (x / (f[4] | 1)) ^ (x % (f[5] | 1)) ^ x.wrapping_neg()
        },
    },
    Case {
        name: "byte orders",
        source: "u64 filter(const u64 *f) {
            return __builtin_bswap64(f[0]) + __builtin_bswap32(f[1]) + __builtin_bswap16(f[2]);
        }",
        expected: |f| {
            let narrow = u64::from((f[1] as u32).swap_bytes());
            let sum = f[0].swap_bytes().wrapping_add(narrow);
            sum.wrapping_add((f[2] as u16).swap_bytes().into())
        },
    },
    Case {
        name: "parts of slots",
        source: "u64 filter(const u64 *f) {
            const u8 *bytes = (const u8 *)f;
            return (u64)bytes[1] + *(const u16 *)(bytes + 10) + *(const u32 *)(bytes + 20) +
                *(const s32 *)(bytes + 28) + *(const s8 *)(bytes + 33);
        }",
        expected: |f| {
            let sum = (f[0] >> 8 & 0xff) + (f[1] >> 16 & 0xffff);
            let sum = sum.wrapping_add(f[2] >> 32);
            let sum = sum.wrapping_add((f[3] >> 32) as i32 as u64);
            sum.wrapping_add((f[4] >> 8) as i8 as u64)
        },
    },
    Case {
        name: "spills",
        source: "u64 filter(const u64 *f) {
            u64 a = f[0], b = f[1] * 3, c = f[2] ^ a, d = f[3] + b, e = f[4] - c, g = f[5] * d;
            u64 h = string_hash(f, f[8]);
            u64 i = h + count(f, 0);
            u64 j = string_hash(f, f[8]) ^ i;
            return a ^ b << 1 ^ c << 2 ^ d << 3 ^ e << 4 ^ g << 5 ^ h ^ j + f[6];
        }",
        expected: |f| {
            let (a, b) = (f[0], f[1].wrapping_mul(3));
            let (c, d) = (f[2] ^ a, f[3].wrapping_add(b));
            let (e, g) = (f[4].wrapping_sub(c), f[5].wrapping_mul(d));
            let h = hash_fnv1a(BYTES);
            // The cell's count starts at 5.
            let j = h ^ h.wrapping_add(5);
            let sum = a ^ (b << 1) ^ (c << 2) ^ (d << 3) ^ (e << 4) ^ (g << 5);
            sum ^ h ^ j.wrapping_add(f[6])
        },
    },
    Case {
        name: "functions",
        source:
            "FUNCTION u64 third(const u64 *f, u64 x) { return x * f[3] + string_hash(f, f[8]); }
        FUNCTION u64 second(const u64 *f, u64 a, u64 b, u64 c, u64 d) {
            return third(f, a - b) + third(f, c ^ d) + a;
        }
        FUNCTION u64 first(const u64 *f, u64 x) { return second(f, x, f[1], x + 1, f[2]) ^ x; }
        u64 filter(const u64 *f) { return first(f, f[0]) + first(f, f[4]) + f[5]; }",
        expected: |f| {
            let third = |x: u64| x.wrapping_mul(f[3]).wrapping_add(hash_fnv1a(BYTES));
            let second = |a: u64, b: u64, c: u64, d: u64| {
                third(a.wrapping_sub(b)).wrapping_add(third(c ^ d)).wrapping_add(a)
            };
            let first = |x: u64| second(x, f[1], x.wrapping_add(1), f[2]) ^ x;
            first(f[0]).wrapping_add(first(f[4])).wrapping_add(f[5])
        },
    },
    Case {
        name: "a pointer into the frame for a function",
        source: "FUNCTION u64 sum(const u64 *at, u64 more) { return at[0] + at[1] * more; }
        u64 filter(const u64 *f) { return sum(f + 2, f[0]) + sum(f + 2, f[1]); }",
        expected: |f| {
            let sum = |more: u64| f[2].wrapping_add(f[3].wrapping_mul(more));
            sum(f[0]).wrapping_add(sum(f[1]))
        },
    },
    Case {
        name: "any",
        source: "FUNCTION u64 slash(const u64 *f, u64 element) { return element == f[0] % 128; }
        u64 filter(const u64 *f) { return any(f, f[8], 5, slash) ? f[1] : 2; }",
        expected: |f| if BYTES.contains(&((f[0] % 128) as u8)) { f[1] } else { 2 },
    },
    Case {
        name: "switch",
        source: "u64 filter(const u64 *f) {
            u64 r = f[1];
            switch (f[0] % 8) {
            case 0: r += f[2]; break;
            case 1: r *= f[3]; /* fall through */
            case 2: r -= f[4]; break;
            case 3: return 7;
            case 5: r ^= f[5]; break;
            case 6: r = string_compare(f, f[8], f[8]) ? 1 : f[6]; break;
            default: r = 0;
            }
            return r + 1;
        }",
        expected: |f| {
            let r = match f[0] % 8 {
                0 => f[1].wrapping_add(f[2]),
                1 => f[1].wrapping_mul(f[3]).wrapping_sub(f[4]),
                2 => f[1].wrapping_sub(f[4]),
                3 => return 7,
                5 => f[1] ^ f[5],
                6 => f[6],
                _ => 0,
            };
            r.wrapping_add(1)
        },
    },
    Case {
        name: "structures on the stack",
        source: "struct pair { u64 a; u32 b; u16 c; u8 d[2]; };
        u64 filter(const u64 *f) {
            volatile struct pair pairs[3];
            struct pair other = { f[0], f[1], f[2], { f[3], f[4] } };
            pairs[0].a = f[0]; pairs[1].b = f[1]; pairs[2].c = f[2]; pairs[2].d[1] = f[3];
            const u64 *volatile kept = f + 4;
            count(f, 0);
            u64 sum = pairs[0].a + pairs[1].b + pairs[2].c + pairs[2].d[1] + kept[1];
            return sum + other.a * 3 + other.c + other.d[1];
        }",
        expected: |f| {
            let sum = f[0].wrapping_add(u64::from(f[1] as u32)).wrapping_add(f[2] & 0xffff);
            let sum = sum.wrapping_add(f[3] & 0xff).wrapping_add(f[5]);
            let sum = sum.wrapping_add(f[0].wrapping_mul(3)).wrapping_add(f[2] & 0xffff);
            sum.wrapping_add(f[4] & 0xff)
        },
    },
    Case {
        name: "unrolled loops",
        source: "u64 filter(const u64 *f) {
            u64 sum = 0, kept[8];
            const u64 *at = f;
            #pragma clang loop unroll(full)
            for (int i = 0; i < 8; i++) kept[i] = *at++ * (i + 1);
            count(f, 0);
            #pragma clang loop unroll(full)
            for (int i = 0; i < 8; i++) if (kept[i] > f[7 - i]) sum += kept[i] ^ i;
            return sum;
        }",
        expected: |f| {
            let kept = |i: usize| f[i].wrapping_mul(i as u64 + 1);
            let sum = (0..8).filter(|&i| kept(i) > f[7 - i]).map(|i| kept(i) ^ i as u64);
            sum.fold(0, u64::wrapping_add)
        },
    },
    Case {
        name: "least and greatest",
        source: "u64 filter(const u64 *f) {
            s64 least = f[0], greatest = f[0];
            #pragma clang loop unroll(full)
            for (int i = 1; i < 6; i++) {
                s64 x = f[i];
                least = x < least ? x : least;
                greatest = x > greatest ? x : greatest;
            }
            return greatest - least;
        }",
        expected: |f| {
            let numbers = || f[..6].iter().map(|&number| number as i64);
            let (least, greatest) = (numbers().min(), numbers().max());
            greatest.unwrap_or(0).wrapping_sub(least.unwrap_or(0)) as u64
        },
    },
    Case {
        name: "patterns",
        source: "u64 filter(const u64 *f) {
            u64 all = 0x0000000500000000ULL | 1ULL << 31;
            return string_matches(f, f[8], all) && !string_matches(f, f[8], all - (1ULL << 32));
        }",
        expected: |_| 1,
    },
];

fn hash_fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Compiles a filter with clang; returns the bytes of its program.
fn compile_filter(case: &Case, cpu: &str) -> Vec<u8> {
    let folder = TemporaryFolder::new();
    let (source, output) = (folder.join("filter.c"), folder.join("filter.o"));
    std::fs::write(&source, format!("#include \"filter.h\"\n{}", case.source)).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clang");
    let result = Command::new("clang")
        .args(["-O2", "-target", "bpf", "-Wno-everything", "-c", &format!("-mcpu={cpu}")])
        .arg("-I")
        .args([&include, &source])
        .arg("-o")
        .arg(&output)
        .output()
        .expect("clang runs");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    link_object(&std::fs::read(&output).expect("an object"))
}

/// Extracts the object's code, with function addresses as loads with `LDDW_FUNCTION`.
fn link_object(elf: &[u8]) -> Vec<u8> {
    let file = object::File::parse(elf).expect("an ELF file");
    let text = file.section_by_name(".text").expect("code");
    let mut code = text.data().expect("its bytes").to_vec();
    for (offset, relocation) in text.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            panic!("{relocation:?}");
        };
        let symbol = file.symbol_by_index(index).expect("a symbol");
        assert_eq!(symbol.section_index(), Some(text.index()), "of this file's code");
        let at = offset as usize;
        let (before, insn) = (at / INSN_BYTES, &mut code[at..at + INSN_BYTES]);
        let addend = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
        let start = (symbol.address() as i64 + i64::from(addend)) / INSN_BYTES as i64;
        let distance = (start - before as i64 - 1) as i32;
        insn[1] |= LDDW_FUNCTION << 4;
        insn[4..].copy_from_slice(&distance.to_le_bytes());
    }
    code
}

fn random_input(dice: &mut Dice) -> Input {
    let mut slots: Vec<u64> = (0..SLOTS).map(|_| dice.number()).collect();
    slots[8] = Word { offset: 0, length: BYTES.len() as u32, is_constant: false }.to_bits();
    Input { slots, bytes: BYTES.to_vec(), constants: b"GET *".to_vec(), cells: vec![5] }
}

#[test]
fn filters_in_c_are_accepted_and_right() {
    if Command::new("clang").arg("--version").output().is_err() {
        trackway_testkit::report_skipped("clang is not installed");
        return;
    }
    for case in &CASES {
        for cpu in ["v2", "v3"] {
            let bytes = compile_filter(case, cpu);
            let verified = verify_program(&bytes, Rules::new(SLOTS)).unwrap_or_else(|rejection| {
                panic!("{} {cpu}: {rejection}\n{}", case.name, format_listing(&bytes));
            });
            let mut dice = Dice::new(1);
            for _ in 0..40 {
                let input = random_input(&mut dice);
                let expected = (case.expected)(&input.slots);
                let answer = run_both(&[verified], &input).answer;
                let slots = &input.slots;
                assert_eq!(answer, expected, "{} {cpu} of {slots:#x?}", case.name);
            }
        }
    }
}
