"""A graph of LangGraph with tools, and a model of langchain-openai: `python langgraph_agent.py whole|stream`."""

import sys
from pathlib import Path

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def read_file(path: str) -> str:
    """What is in a file."""
    return Path(path).read_text()


@tool
def write_file(path: str, text: str) -> str:
    """Writes a file anew."""
    Path(path).write_text(text)
    return f"{len(text)} characters are in {path}"


TOOLS = [read_file, write_file]
model = ChatOpenAI(model="any").bind_tools(TOOLS)


def ask(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("model", ask)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
compiled = graph.compile()
system = ("system", "You add numbers in files.")
asked = {"messages": [system, ("user", "Add what a.txt and b.txt hold, and write the sum to c.txt.")]}
if sys.argv[1] == "whole":
    said = compiled.invoke(asked)["messages"][-1].content
else:
    parts = [(part.content, at["langgraph_node"]) for part, at in compiled.stream(asked, stream_mode="messages")]
    said = "".join(text for text, at in parts if at == "model")
sys.stdout.write(said)
