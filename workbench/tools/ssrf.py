"""The guard of requests: which addresses may be connected to, checked where the connection is made.

A name is resolved once, all its addresses are checked, and the connection goes to the very address that was checked: a
name that means another address a moment later changes nothing. `is_public` is pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import httpcore

from workbench.tools.operation import ToolError
from workbench.tools.workshop import Resolve

_RANGES_4 = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
    192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
    203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
"""
NOT_PUBLIC_4 = tuple(map(ipaddress.IPv4Network, _RANGES_4.split()))
PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""All else is mapped, translated (NAT64), local, link-local, multicast or not given to anybody."""
_RANGES_6 = "2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20"
NOT_PUBLIC_6 = tuple(map(ipaddress.IPv6Network, _RANGES_6.split()))
"""Teredo and its like, examples, 6to4."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_4)
    return address.scope_id is None and address in PUBLIC_6 and not any(address in network for network in NOT_PUBLIC_6)


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to public addresses, and to those of `networks`. Raises ToolError for any other."""

    def __init__(
        self, resolve: Resolve, networks: Iterable[str], inner: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._resolve = resolve
        self._networks: list[Network] = [ipaddress.ip_network(one) for one in networks]
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError("failed", f"the name {host} can't be resolved: {error}") from None
        addresses = [self._check_address(host, one) for one in found]
        if not addresses:
            raise ToolError("failed", f"the name {host} has no address")
        trouble: Exception | None = None
        for address in addresses[:4]:
            try:
                return await self._inner.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                trouble = error
        raise ToolError("failed", f"{host} port {port} can't be connected to: {trouble}")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise ToolError("policy", "no request goes over a Unix socket")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    def _check_address(self, host: str, text: str) -> Address:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise ToolError("policy", f"{host} leads to {text}, which is no address") from None
        if is_public(address) or any(address.version == one.version and address in one for one in self._networks):
            return address
        raise ToolError(
            "policy",
            f"{host} leads to {address}, which is not public: requests go to public addresses alone; ranges of others "
            "may be named in the policy (http.networks)",
        )
