"""What a box holds, as an object, by a library of the name: `python structured.py LIBRARY native|tool`.

`native`: by a JSON Schema that the answer fits. `tool`: by a call of a tool that the model must make.
"""

import json
import os
import sys

from pydantic import BaseModel

ASKED = "What is in the red box?"
URL = os.environ.get("OPENAI_BASE_URL", "")


class Box(BaseModel):
    colour: str
    coins: int


def by_pydantic_ai(way: str) -> Box:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel

    agent = Agent(OpenAIChatModel("any"), output_type=NativeOutput(Box) if way == "native" else Box)
    return agent.run_sync(ASKED).output


def by_instructor(way: str) -> Box:
    import instructor
    from openai import OpenAI

    mode = instructor.Mode.JSON_SCHEMA if way == "native" else instructor.Mode.TOOLS
    client = instructor.from_openai(OpenAI(), mode=mode)
    messages = [{"role": "user", "content": ASKED}]
    return client.chat.completions.create(model="any", response_model=Box, messages=messages, max_retries=0)


def by_dspy(way: str) -> Box:
    import dspy

    model = dspy.LM("openai/any", api_base=URL, api_key=os.environ["OPENAI_API_KEY"], cache=False, num_retries=0)
    dspy.configure(lm=model, adapter=dspy.JSONAdapter())
    found = dspy.Predict("question -> colour: str, coins: int")(question=ASKED)
    return Box(colour=found.colour, coins=found.coins)


def by_langchain(way: str) -> Box:
    from langchain_openai import ChatOpenAI

    method = "json_schema" if way == "native" else "function_calling"
    return ChatOpenAI(model="any", max_retries=0).with_structured_output(Box, method=method).invoke(ASKED)


def by_openai(way: str) -> Box:
    from openai import OpenAI, pydantic_function_tool

    client, messages = OpenAI(max_retries=0), [{"role": "user", "content": ASKED}]
    if way == "native":
        told = client.chat.completions.parse(model="any", messages=messages, response_format=Box)
        return told.choices[0].message.parsed
    told = client.chat.completions.parse(
        model="any",
        messages=messages,
        tools=[pydantic_function_tool(Box)],
        tool_choice={"type": "function", "function": {"name": "Box"}},
    )
    return told.choices[0].message.tool_calls[0].function.parsed_arguments


def by_anthropic(way: str) -> Box:
    from anthropic import Anthropic

    client = Anthropic(max_retries=0)
    asked = {"model": "any", "max_tokens": 200, "messages": [{"role": "user", "content": ASKED}]}
    schema = Box.model_json_schema() | {"additionalProperties": False}
    if way == "native":
        output = {"format": {"type": "json_schema", "schema": schema}}
        told = client.messages.create(**asked, output_config=output)
        return Box.model_validate_json(told.content[0].text)
    tool = {"name": "Box", "description": "A box.", "input_schema": schema}
    told = client.messages.create(**asked, tools=[tool], tool_choice={"type": "tool", "name": "Box"})
    return Box.model_validate(next(one for one in told.content if one.type == "tool_use").input)


if __name__ == "__main__":
    library, way = sys.argv[1:]
    box = globals()[f"by_{library.replace('-', '_')}"](way)
    sys.stdout.write(json.dumps(box.model_dump()))
