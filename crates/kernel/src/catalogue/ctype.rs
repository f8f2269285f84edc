//! C types by name: the integers that represent them on a 64-bit kernel.

use trackway_schema::Scalar;

/// Returns the integer that represents a type, if its name suffices; ignores qualifiers.
pub(crate) fn scalar_of_type(name: &str) -> Option<Scalar> {
    let mut words: Vec<&str> = name.split_ascii_whitespace().collect();
    words.retain(|word| !matches!(*word, "const" | "volatile" | "__user" | "__force"));
    words.truncate(8);
    Some(match words.as_slice() {
        [word] => return scalar_of_word(word),
        ["signed", "char"] => Scalar::I8,
        ["unsigned", "char"] => Scalar::U8,
        ["unsigned", "short"] | ["short", "unsigned", "int"] | ["unsigned", "short", "int"] => {
            Scalar::U16
        }
        ["short", "int"] => Scalar::I16,
        ["unsigned", "int"] => Scalar::U32,
        ["unsigned", "long"]
        | ["unsigned", "long", "long"]
        | ["long", "unsigned", "int"]
        | ["long", "long", "unsigned", "int"]
        | ["unsigned", "long", "int"] => Scalar::U64,
        ["long", "long"] | ["long", "int"] | ["long", "long", "int"] => Scalar::I64,
        ["enum", _] => Scalar::U32,
        _ => return None,
    })
}

fn scalar_of_word(word: &str) -> Option<Scalar> {
    Some(match word {
        "bool" | "_Bool" => Scalar::Bool,
        "s8" | "__s8" | "int8_t" => Scalar::I8,
        "char" | "u8" | "__u8" | "uint8_t" => Scalar::U8,
        "short" | "s16" | "__s16" | "int16_t" => Scalar::I16,
        "u16" | "__u16" | "uint16_t" | "umode_t" | "ushort" | "__le16" | "__be16" => Scalar::U16,
        "int" | "s32" | "__s32" | "int32_t" | "signed" | "pid_t" | "clockid_t" | "timer_t"
        | "key_serial_t" | "mqd_t" | "key_t" | "rwf_t" => Scalar::I32,
        "unsigned" | "uint" | "u32" | "__u32" | "uint32_t" | "uid_t" | "gid_t" | "dev_t"
        | "qid_t" | "gfp_t" | "__be32" | "__le32" => Scalar::U32,
        "long" | "s64" | "__s64" | "int64_t" | "loff_t" | "off_t" | "ssize_t" | "time64_t"
        | "ktime_t" => Scalar::I64,
        "u64" | "__u64" | "uint64_t" | "size_t" | "ulong" | "ino_t" | "sector_t" | "__be64"
        | "__le64" | "aio_context_t" | "uintptr_t" => Scalar::U64,
        _ => return None,
    })
}

/// Returns the integer of this size and sign, if there is one.
pub(crate) fn integer_scalar(bytes: u32, is_signed: bool) -> Option<Scalar> {
    Some(match (bytes, is_signed) {
        (1, true) => Scalar::I8,
        (1, false) => Scalar::U8,
        (2, true) => Scalar::I16,
        (2, false) => Scalar::U16,
        (4, true) => Scalar::I32,
        (4, false) => Scalar::U32,
        (8, true) => Scalar::I64,
        (8, false) => Scalar::U64,
        _ => return None,
    })
}

/// Returns the mask of all bits of an integer.
pub(crate) const fn value_mask(scalar: Scalar) -> u64 {
    u64::MAX >> (64 - 8 * scalar.size_bytes())
}

/// Returns true for a structure or union itself, not for a pointer to a structure.
pub(crate) fn is_aggregate(type_text: &str) -> bool {
    let is_named =
        type_text.split_ascii_whitespace().any(|word| matches!(word, "struct" | "union"));
    is_named && !type_text.contains('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_integers_are_known() {
        assert_eq!(scalar_of_type("unsigned long long"), Some(Scalar::U64));
        assert_eq!(scalar_of_type("const clockid_t"), Some(Scalar::I32));
        assert_eq!(scalar_of_type("enum zone_type"), Some(Scalar::U32));
        assert_eq!(scalar_of_type("struct page"), None);
        assert_eq!(scalar_of_type("xfs_ino_t"), None);
        assert_eq!(scalar_of_type(""), None);
        assert!(is_aggregate("struct fpu") && !is_aggregate("struct fpu *"));
    }
}
