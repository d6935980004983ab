// Anthropic's client for Node: `node anthropic_client.mjs SCENARIO whole|stream`; what it heard, as JSON.
import { createRequire } from "node:module";

const Anthropic = createRequire(import.meta.url)("@anthropic-ai/sdk");
const [scenario, way] = process.argv.slice(2);
const streamed = way === "stream";
const cached = { cache_control: { type: "ephemeral" } };
const schema = { type: "object", properties: { box: { type: "string" } }, required: ["box"] };
const tool = { name: "look", description: "Look into a box.", input_schema: schema, ...cached };
const fields = {
  temperature: 0.2, top_k: 5, metadata: { user_id: "somebody" }, service_tier: "auto",
  thinking: { type: "enabled", budget_tokens: 1024 },
};
const client = new Anthropic({ maxRetries: scenario === "abort" ? 0 : 2 });

const asked = (text) => [{ role: "user", content: [{ type: "text", text, ...cached }] }];

async function said(messages, given = {}) {
  const system = [{ type: "text", text: "Be brief.", ...cached }];
  const body = { model: "any", max_tokens: 2000, system, messages, ...given };
  return streamed ? await client.messages.stream(body).finalMessage() : await client.messages.create(body);
}

const textOf = (message) => message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

const scenarios = {
  async tools() {
    const given = { tools: [tool], tool_choice: { type: "auto", disable_parallel_tool_use: true }, ...fields };
    const messages = asked("What is in the red box?");
    const first = await said(messages, given);
    const [use] = first.content.filter((block) => block.type === "tool_use");
    const content = [{ type: "text", text: `a coin in the ${use.input.box} box` }];
    const result = { type: "tool_result", tool_use_id: use.id, content, ...cached };
    const history = [...messages, { role: "assistant", content: first.content }, { role: "user", content: [result] }];
    const second = await said(history, given);
    return { tool: use.name, finish: first.stop_reason, answer: textOf(second) };
  },
  async runner() {
    const run = async ({ box }) => `a coin in the ${box} box`;
    const body = { model: "any", max_tokens: 99, messages: asked("What is in the red box?"), stream: streamed };
    const steps = client.beta.messages.toolRunner({ ...body, tools: [{ ...tool, run, parse: (input) => input }] });
    let last;
    for await (const step of steps) last = streamed ? await step.finalMessage() : step;
    return { answer: textOf(last) };
  },
  async stop() {
    const told = await said(asked("Count."), { stop_sequences: [" four", "five"] });
    const { stop_reason: finish, stop_sequence: found, usage } = told;
    return { answer: textOf(told), finish, found, sampled: usage.output_tokens };
  },
  async long() {
    try {
      await said(asked("many words ".repeat(4000)));
    } catch (error) {
      if (!(error instanceof Anthropic.BadRequestError)) throw error;
      const told = error.error.error;
      return { error: error.constructor.name, code: told.type, message: told.message };
    }
    return {};
  },
  // It goes away behind the first word, or where the whole answer does not come in time.
  async abort() {
    let heard = "";
    const body = { model: "any", max_tokens: 99, messages: asked("Count.") };
    if (streamed) {
      const stream = await client.messages.create({ ...body, stream: true });
      for await (const event of stream) {
        if (event.type === "content_block_delta") heard = event.delta.text;
        if (heard) break;
      }
    } else {
      try {
        await client.messages.create(body, { timeout: 1500 });
      } catch (error) {
        heard = error.constructor.name;
      }
    }
    return { heard, answer: textOf(await client.messages.create(body)) };
  },
  async retry() {
    const messages = asked("What is in it?");
    const first = await said(messages);
    const history = [...messages, { role: "assistant", content: first.content }, ...asked("Sure?")];
    return { answer: textOf(first), again: textOf(await said(history)) };
  },
};

process.stdout.write(JSON.stringify(await scenarios[scenario]()));
