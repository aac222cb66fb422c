"""Addresses of this machine: which of them mean itself, and which other machines can open."""

from __future__ import annotations

import ipaddress
import socket

# Reserved for documentation: no machine has these addresses.
NOWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def is_loopback(host: str) -> bool:
    """Whether this name is this machine, seen from itself."""
    is_named = host.lower() == "localhost"
    return is_named or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_everywhere(host: str) -> bool:
    """Whether this stands for all addresses of this machine."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def in_address(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def addresses_of(host: str) -> list[str]:
    """This machine's name, and its addresses as other machines see them, where it listens on all of them."""
    if not is_everywhere(host):
        return []
    families = [socket.AF_INET6, socket.AF_INET] if ":" in host else [socket.AF_INET]
    found = [address for family in families for address in (_outward(family), *_named(family))]
    known = dict.fromkeys(address for address in found if address and not is_loopback(address))
    return [socket.gethostname().lower(), *known]


def _outward(family: socket.AddressFamily) -> str | None:
    """The address from which this machine would speak to others. Nothing is sent: UDP only looks up the way."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((NOWHERE[family], 9))
            return str(way.getsockname()[0])
    except OSError:
        return None


def _named(family: socket.AddressFamily) -> list[str]:
    """The addresses that this machine's name stands for."""
    try:
        return [str(one[4][0]) for one in socket.getaddrinfo(socket.gethostname(), None, family)]
    except OSError:
        return []
