// A linear agent of OpenAI's client for Node, told as openai_loop.py is: `node openai_loop.mjs`.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const OpenAI = createRequire(import.meta.url)("openai");
const system = "You look into boxes, and say what is in them.";
const parameters = { type: "object", properties: { box: { type: "string" } }, required: ["box"] };
const tools = [{ type: "function", function: { name: "look", description: "Look into a box.", parameters } }];
const shared = new OpenAI();

async function answer(client, history, turn) {
  const body = { model: "any", messages: history, tools, max_tokens: turn.max_tokens };
  if (turn.stop.length) body.stop = turn.stop;
  const completion = turn.stream
    ? await client.chat.completions.stream(body).finalChatCompletion()
    : await client.chat.completions.create(body);
  return completion.choices[0].message;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { key, turns } = JSON.parse(line);
  const client = key ? shared.withOptions({ apiKey: key }) : shared;
  const history = [{ role: "system", content: system }];
  let called = 0, calls = [], message;
  for (const turn of turns) {
    const results = calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: turn.text }));
    history.push(...(results.length ? results : [{ role: "user", content: turn.text }]));
    message = await answer(client, history, turn);
    history.push(message);
    calls = message.tool_calls ?? [];
    called += calls.length;
  }
  process.stdout.write(JSON.stringify({ called, answer: message.content ?? "" }) + "\n");
}
