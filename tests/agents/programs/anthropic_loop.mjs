// A linear agent of Anthropic's client for Node, told as openai_loop.py is: `node anthropic_loop.mjs`.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const Anthropic = createRequire(import.meta.url)("@anthropic-ai/sdk");
const system = "You look into boxes, and say what is in them.";
const input_schema = { type: "object", properties: { box: { type: "string" } }, required: ["box"] };
const tools = [{ name: "look", description: "Look into a box.", input_schema }];
const shared = new Anthropic();

async function answer(client, messages, turn) {
  const body = { model: "any", max_tokens: turn.max_tokens, system, messages, tools };
  if (turn.stop.length) body.stop_sequences = turn.stop;
  return turn.stream ? await client.messages.stream(body).finalMessage() : await client.messages.create(body);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { key, turns } = JSON.parse(line);
  const client = key ? shared.withOptions({ apiKey: key }) : shared;
  const history = [];
  let called = 0, calls = [], message;
  for (const turn of turns) {
    const results = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: turn.text }));
    history.push({ role: "user", content: results.length ? results : turn.text });
    message = await answer(client, history, turn);
    history.push({ role: "assistant", content: message.content });
    calls = message.content.filter((block) => block.type === "tool_use");
    called += calls.length;
  }
  const said = message.content.map((block) => (block.type === "text" ? block.text : "")).join("");
  process.stdout.write(JSON.stringify({ called, answer: said }) + "\n");
}
