"""Addresses of this machine: loopback ones, and those that other machines can reach."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

# Reserved for documentation, so that no machine has them: targets to look up the route to the network.
NOWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def is_loopback(host: str) -> bool:
    """Whether this host can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host).is_loopback


def is_everywhere(host: str) -> bool:
    """Whether this host means all addresses of this machine (0.0.0.0 or ::)."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def in_url(name: str) -> str:
    """A host as it is written in a URL: IPv6 addresses in brackets."""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def addresses_of(host: str) -> list[str]:
    """This machine's name and addresses for other machines, if `host` means all addresses; otherwise empty."""
    if not is_everywhere(host):
        return []
    name = socket.gethostname()
    addresses: list[str] = []
    for family in [socket.AF_INET6, socket.AF_INET] if ":" in host else [socket.AF_INET]:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((NOWHERE[family], 9))  # sends nothing: UDP only looks up the route
            addresses.append(str(probe.getsockname()[0]))
        with suppress(OSError):
            addresses += [str(info[4][0]) for info in socket.getaddrinfo(name, None, family)]
    outward = [address for address in addresses if not is_loopback(address)]
    return [name.lower(), *dict.fromkeys(outward)]
