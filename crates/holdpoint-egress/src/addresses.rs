//! Which IP addresses are public.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not public (IANA, IPv4 Special-Purpose Address Registry).
const NOT_PUBLIC_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    // Link-local, with the metadata services of clouds.
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

/// The IPv6 addresses that are routed globally (RFC 4291). All other addresses are local, or reserved.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);
/// Networks among them that are not public (IANA, IPv6 Special-Purpose Address Registry). Teredo is in the
/// first. Teredo and 6to4 addresses lead to any IPv4 address.
const NOT_PUBLIC_V6: [Ipv6Net; 4] =
    [v6([0x2001, 0, 0], 23), v6([0x2001, 0xdb8, 0], 32), v6([0x2002, 0, 0], 16), v6([0x3fff, 0, 0], 20)];
/// IPv4 addresses behind a translator (NAT64, RFC 6052).
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0], 96);

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6([a, b, c]: [u16; 3], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length)
}

/// Returns the address that a packet to this address reaches: the IPv4 address inside of an IPv6 address that
/// only carries it.
pub(super) fn reached(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.contains(&v6) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        canonical => canonical,
    }
}

/// Whether a reached address is public: not of this machine, of a private network or of a link.
pub(super) fn is_public(reached: IpAddr) -> bool {
    match reached {
        IpAddr::V4(v4) => !NOT_PUBLIC_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => GLOBAL_V6.contains(&v6) && !NOT_PUBLIC_V6.iter().any(|net| net.contains(&v6)),
    }
}

/// Whether one of the networks has the address.
pub(super) fn is_in(networks: &[IpNet], reached: IpAddr) -> bool {
    networks.iter().any(|net| net.contains(&reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(address: &str) -> bool {
        is_public(reached(address.parse().unwrap()))
    }

    #[test]
    fn addresses_of_machines_private_networks_links_and_translators_are_not_public() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_open(address), "{address}");
        }
    }

    #[test]
    fn other_addresses_are_public_also_behind_a_translator() {
        for address in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2001:200::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
        ] {
            assert!(is_open(address), "{address}");
        }
    }
}
