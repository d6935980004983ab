"""Ask a service of the fleet over its API: the one that was started here, or one by its address."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import typer

from ratchet.runtime.processes import PROCESSES
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetFolder
from services.cli.terminal import CommandError

ManagerUrl = Annotated[str | None, typer.Option(help="Where the manager is; that of this folder's fleet.")]
FleetUrl = Annotated[str | None, typer.Option(help="Where the orchestrator is; that of this folder's fleet.")]
FleetToken = Annotated[
    str | None,
    typer.Option(envvar="RATCHET_API_TOKEN", show_envvar=True, help="API token, where the fleet asks for one."),
]


def api_client(service: str, url: str | None, token: str | None) -> httpx.Client:
    """`url`: where the service is; if None, where this folder's fleet has it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=url or _here(service), headers=headers, timeout=30.0, trust_env=url is not None)


def call_api(client: httpx.Client, method: str, path: str, **request: Any) -> Any:
    """Return the JSON of the answer. Raises CommandError."""
    try:
        answer = client.request(method, path, **request)
    except httpx.HTTPError as error:
        raise CommandError(
            f"nothing answers at {client.base_url} ({error}): is the fleet up, with this service?; {FROM_ELSEWHERE}"
        ) from None
    if answer.is_success:
        return answer.json()
    try:
        said = answer.json()
        why = f"{said.get('title')}: {said.get('detail')}"
    except ValueError:
        why = answer.reason_phrase
    raise CommandError(f"{method} {path} is refused ({answer.status_code}): {why}")


def _here(service: str) -> str:
    record = FleetFolder.here().record()
    port = record.port_of(service) if record else None
    return f"http://127.0.0.1:{port or PROCESSES[service].port}"
