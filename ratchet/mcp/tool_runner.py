"""Makes a tool of the SDK: arguments in, one call, and a result of bounded size."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from ratchet.http.operation import Effect
from ratchet.mcp.rest import Call, CallFailed, Progress, Route, Services, ask
from ratchet.mcp.tools import ToolSpec
from workbench.tools.bounds import TooBig, bound_value

CONTEXT = "context"


class RawArguments(FuncMetadata):
    """Hands the arguments on as they came: the tool and the API say in a sentence what is wrong with them."""

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        return {"arguments": arguments_to_validate}


def tool_of(spec: ToolSpec, services: Services) -> Tool:
    """The tool that calls the route among the `services`."""

    async def run(context: Context[Any, Any], arguments: dict[str, Any]) -> CallToolResult:
        try:
            call = spec.call(arguments)
            answer = await ask(services, spec.route, call, _progress(call, context))
            return _result(spec.route, call, answer)
        except CallFailed as failure:
            return CallToolResult(content=[TextContent(type="text", text=str(failure))], is_error=True)

    return Tool(
        fn=run,
        name=spec.name,
        title=spec.title,
        description=spec.description,
        parameters=spec.input_schema,
        fn_metadata=RawArguments(arg_model=ArgModelBase, output_schema=spec.output_schema),
        is_async=True,
        context_kwarg=CONTEXT,
        annotations=hints_of(spec),
    )


def hints_of(spec: ToolSpec) -> ToolAnnotations:
    """A client decides by them whether to ask its user first."""
    return ToolAnnotations(
        title=spec.title,
        read_only_hint=spec.effect is Effect.READS,
        destructive_hint=spec.effect is Effect.REPLACES,
        idempotent_hint=spec.effect not in (Effect.WORKS, Effect.ADDS),
        open_world_hint=False,
    )


def _progress(call: Call, context: Context[Any, Any]) -> Progress:
    async def report(waited_s: float, how: str) -> None:
        await context.report_progress(waited_s, call.wait_s, how)

    return report


def _result(route: Route, call: Call, answer: Any) -> CallToolResult:
    try:
        short = bound_value(answer)
    except TooBig as error:
        raise CallFailed(
            f"the answer is too big to read here ({error}): ask for fewer items with limit, or read it with "
            f"{route.method} {route.path(call.path)}"
        ) from None
    content = [TextContent(type="text", text=short.text)]
    if short.cut:
        where = ", ".join(short.cut[:5]) + (f" and {len(short.cut) - 5} more places" if len(short.cut) > 5 else "")
        note = f"Shortened to fit: {where}. Whole with {route.method} {route.path(call.path)}"
        content.append(TextContent(type="text", text=note))
    return CallToolResult(content=content, structured_content=short.value)
