//! Text forms of addresses in byte arrays: internet addresses, hardware addresses, UUIDs.

use std::net::SocketAddr;

use trackway_ctf::read::{Meaning, Member, Type};

use crate::socket::decode_internet_address;

/// Linux's numbers of address families (linux/socket.h).
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Indexes of the UUID bytes that follow a hyphen.
const UUID_SIGNS: [usize; 4] = [4, 6, 8, 10];

/// A kind of address that is an array of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AddressKind {
    Internet,
    Hardware,
    Uuid,
}

impl AddressKind {
    /// Returns the kind of address in the bytes of `member`, if any.
    pub(crate) fn of(member: &Member) -> Option<Self> {
        let Type::Array(array) = member.kind() else { return None };
        let Type::Integer(byte) = array.element() else { return None };
        match byte.meaning()? {
            Meaning::Internet => Some(Self::Internet),
            Meaning::Hardware => Some(Self::Hardware),
            Meaning::Uuid => Some(Self::Uuid),
            _ => None,
        }
    }

    /// Appends the address `bytes` as text.
    pub(crate) fn push(self, out: &mut Vec<u8>, bytes: &[u8]) {
        let text = match self {
            Self::Internet => decode_internet_address(bytes).map(|address| address.to_string()),
            _ => None,
        };
        // `struct sockaddr`: the family, then port and address in network byte order.
        let text = text.or_else(|| {
            let &[low, high, port_high, port_low, ..] = bytes else { return None };
            let address = match u16::from_le_bytes([low, high]) {
                AF_INET => bytes.get(4..8)?,
                AF_INET6 => bytes.get(8..24)?,
                _ => return None,
            };
            let port = u16::from_be_bytes([port_high, port_low]);
            let is_internet = matches!(self, Self::Internet);
            let address = decode_internet_address(address).filter(|_| is_internet)?;
            Some(SocketAddr::new(address, port).to_string())
        });
        match text {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => self.push_digits(out, bytes),
        }
    }

    /// Appends hexadecimal digits: `02:00:5e:10:00:ff`, `ed5b64dc-246a-4f30-8319-ad4e4c25be20`.
    fn push_digits(self, out: &mut Vec<u8>, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let sign = match self {
                Self::Hardware | Self::Internet if index > 0 => ":",
                Self::Uuid if UUID_SIGNS.contains(&index) => "-",
                _ => "",
            };
            out.extend_from_slice(format!("{sign}{byte:02x}").as_bytes());
        }
    }
}
