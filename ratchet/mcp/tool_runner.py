"""From a line of the tool table to a tool of the SDK: arguments in, one call, and a result of bounded size.

Arguments are taken as they are: text that happens to be JSON stays text wherever text is allowed, and an argument that
the tool does not have is an error, not ignored.
"""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata, func_metadata
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError, create_model

from ratchet.mcp.call import Call, Route
from ratchet.mcp.rest import CallFailed, Progress, Services, ask
from ratchet.mcp.tool_table import ToolSpec
from schemas.messages.base import explain
from workbench.tools.bounds import TooBig, bound_value

CONTEXT = "context"


class RawArguments(FuncMetadata):
    """Hands the arguments on as they came: `_call` reads them, and says in a sentence what is wrong with them."""

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        return {"arguments": arguments_to_validate}


def tool_of(spec: ToolSpec, services: Services) -> Tool:
    """The tool that calls the route among the `services`."""
    metadata = RawArguments(arg_model=_argument_model(spec), output_schema=spec.output_schema)

    async def run(context: Context[Any, Any], arguments: dict[str, Any]) -> CallToolResult:
        try:
            call = _call(spec, metadata, arguments)
            answer = await ask(services, spec.route, call, _progress(call, context))
            return _result(spec.route, call, answer)
        except CallFailed as failure:
            return CallToolResult(content=[TextContent(type="text", text=str(failure))], is_error=True)

    return Tool(
        fn=run,
        name=spec.name,
        title=spec.title,
        description=spec.description,
        parameters=metadata.arg_model.model_json_schema(by_alias=True),
        fn_metadata=metadata,
        is_async=True,
        context_kwarg=CONTEXT,
        annotations=spec.annotations,
    )


def _call(spec: ToolSpec, metadata: FuncMetadata, arguments: dict[str, Any]) -> Call:
    """A list or an object that came as JSON in a string, as some clients send them, is understood where no text is
    allowed."""
    try:
        model = metadata.arg_model.model_validate(arguments)
    except ValidationError:
        try:
            model = metadata.arg_model.model_validate(metadata.pre_parse_json(arguments))
        except ValidationError as error:
            raise CallFailed(explain(f"call of {spec.name}", error)) from None
    return spec.function(**model.model_dump_one_level())


def _argument_model(spec: ToolSpec) -> type[ArgModelBase]:
    read = func_metadata(spec.function, structured_output=False).arg_model
    strict = {"extra": "forbid", "hide_input_in_errors": True}
    return create_model(read.__name__, __base__=read, __cls_kwargs__=strict)


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
