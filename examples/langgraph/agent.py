"""A graph of LangGraph that works by the tools of Ratchet, which it starts beside itself and talks MCP to.

The task is on stdin, what it prints is its answer; the model is found by OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import asyncio
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

SERVER = {
    "transport": "stdio",
    "command": "/ratchet/environment/bin/python",
    "args": ["-I", "/ratchet/run.py", "serve"],
}
TOOLS = {"file_list", "file_read", "file_replace", "file_write", "test_run"}
INSTRUCTIONS = "You work in a workspace with tools. Look before you change anything, and check what you did."


async def main() -> None:
    async with MultiServerMCPClient({"ratchet": SERVER}).session("ratchet") as session:
        tools = [tool for tool in await load_mcp_tools(session) if tool.name in TOOLS]
        model = ChatOpenAI(model="any").bind_tools(tools)

        async def ask(state: MessagesState) -> dict:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", ask)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        asked = {"messages": [("system", INSTRUCTIONS), ("user", sys.stdin.read())]}
        done = await graph.compile().ainvoke(asked, {"recursion_limit": 50})
    sys.stdout.write(f"{done['messages'][-1].content}\n")


asyncio.run(main())
