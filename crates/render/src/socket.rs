//! Socket addresses, composed of their recorded parts.
//!
//! ```text
//! {AF_INET, 127.0.0.1:80}  {AF_UNIX, "/run/x"}  {AF_NETLINK, pid=0, groups=0x1}
//! ```

use std::net::{IpAddr, SocketAddr};

use crate::fields::push_quoted;

/// Linux's numbers of address families (linux/socket.h).
const AF_NETLINK: u64 = 16;
const AF_PACKET: u64 = 17;
const AF_VSOCK: u64 = 40;

/// A part of a socket address, by LTTng's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketPart {
    Family,
    Port,
    Internet,
    Internet6,
    /// Bytes after the family in an address of another family.
    Data,
    Path,
}

impl SocketPart {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "family" => Self::Family,
            "dport" | "sport" => Self::Port,
            "v4addr" => Self::Internet,
            "v6addr" => Self::Internet6,
            "sa_data" => Self::Data,
            "path" => Self::Path,
            _ => return None,
        })
    }
}

/// A socket address, as far as it was recorded.
#[derive(Debug, Default)]
pub(crate) struct SocketAddress {
    pub(crate) family: u64,
    /// Name of the family.
    pub(crate) family_text: Vec<u8>,
    pub(crate) port: u64,
    /// Bytes of an IPv4 or IPv6 address, in network order.
    pub(crate) address: Vec<u8>,
    /// Bytes after the family in an address of another family.
    pub(crate) data: Vec<u8>,
    pub(crate) path: Option<Vec<u8>>,
}

impl SocketAddress {
    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(&self.family_text);
        if let Some(address) = decode_internet_address(&self.address) {
            let port = u16::try_from(self.port).unwrap_or_default();
            out.extend_from_slice(format!(", {}", SocketAddr::new(address, port)).as_bytes());
        }
        self.push_data(out);
        if let Some(path) = &self.path {
            out.extend_from_slice(b", ");
            push_quoted(out, path);
        }
        out.push(b'}');
    }

    /// Appends the recorded members of the kernel's structure, by their names without the common
    /// prefix (linux/netlink.h, linux/if_packet.h, linux/vm_sockets.h).
    fn push_data(&self, out: &mut Vec<u8>) {
        let word = |at: usize| Some(u32::from_le_bytes(*self.data.get(at..)?.first_chunk()?));
        let short = |at: usize| self.data.get(at..)?.first_chunk::<2>().copied();
        let byte = |at: usize| self.data.get(at).copied();
        let mut push = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                out.extend_from_slice(format!(", {name}={value}").as_bytes());
            }
        };
        match self.family {
            AF_NETLINK => {
                push("pid", word(2).map(|pid| pid.to_string()));
                push("groups", word(6).map(|groups| format!("0x{groups:x}")));
            }
            AF_PACKET => {
                let protocol = short(0).map(u16::from_be_bytes);
                push("protocol", protocol.map(|protocol| format!("0x{protocol:04x}")));
                push("ifindex", word(2).map(|index| index.cast_signed().to_string()));
                push("hatype", short(6).map(|kind| u16::from_le_bytes(kind).to_string()));
                push("pkttype", byte(8).map(|kind| kind.to_string()));
                let bytes = byte(9).and_then(|bytes| self.data.get(10..10 + usize::from(bytes)));
                let bytes = bytes.filter(|bytes| !bytes.is_empty());
                push(
                    "addr",
                    bytes.map(|bytes| {
                        let digits: Vec<String> =
                            bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                        digits.join(":")
                    }),
                );
            }
            AF_VSOCK => {
                push("port", word(2).map(|port| port.to_string()));
                push("cid", word(6).map(|cid| cid.to_string()));
            }
            _ => {}
        }
    }
}

/// Decodes an internet address from its bytes; it is shown in the form of RFC 5952.
pub(crate) fn decode_internet_address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_family_is_shown_by_its_members_as_far_as_it_is_there() {
        let link = [0x88, 0xb5, 2, 0, 0, 0, 1, 0, 4, 6, 2, 0, 0x5e, 0x10, 0, 0xff, 0, 0];
        for (family, data, expected) in [
            (16, &[0, 0, 77, 0, 0, 0, 0x11, 0, 0, 0][..], "{F, pid=77, groups=0x11}"),
            (16, &[0, 0, 77, 0, 0, 0], "{F, pid=77}"),
            (16, &[], "{F}"),
            (40, &[0, 0, 0, 4, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], "{F, port=1024, cid=3}"),
            (
                17,
                &link,
                "{F, protocol=0x88b5, ifindex=2, hatype=1, pkttype=4, addr=02:00:5e:10:00:ff}",
            ),
            (17, &link[..6], "{F, protocol=0x88b5, ifindex=2}"),
            // The length byte exceeds the address.
            (
                17,
                &[0, 3, 2, 0, 0, 0, 1, 0, 4, 255, 2],
                "{F, protocol=0x0003, ifindex=2, hatype=1, pkttype=4}",
            ),
            (99, &[1, 2, 3, 4], "{F}"),
        ] {
            let (family_text, data) = (b"F".to_vec(), data.to_vec());
            let socket = SocketAddress { family, family_text, data, ..SocketAddress::default() };
            let mut out = Vec::new();
            socket.push(&mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
