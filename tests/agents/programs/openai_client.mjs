// OpenAI's client for Node: `node openai_client.mjs SCENARIO whole|stream`; what it heard, as JSON.
import { createRequire } from "node:module";

const OpenAI = createRequire(import.meta.url)("openai");
const [scenario, way] = process.argv.slice(2);
const streamed = way === "stream";
const parameters = { type: "object", properties: { box: { type: "string" } }, required: ["box"] };
const named = { name: "look", description: "Look into a box.", parameters, strict: true };
const fields = {
  temperature: 0.2, top_p: 0.9, parallel_tool_calls: true, reasoning_effort: "low", store: false,
  metadata: { of: "a test" }, user: "somebody", safety_identifier: "somebody", prompt_cache_key: "one",
  service_tier: "auto", verbosity: "low",
};
const client = new OpenAI({ maxRetries: scenario === "abort" ? 0 : 2 });

function asked(text) {
  return [
    { role: "developer", content: [{ type: "text", text: "Be brief." }] },
    { role: "user", content: [{ type: "text", text }] },
  ];
}

async function said(messages, given = {}) {
  const body = { model: "any", messages, ...given };
  const completion = streamed
    ? await client.chat.completions.stream({ stream_options: { include_usage: true }, ...body }).finalChatCompletion()
    : await client.chat.completions.create(body);
  const [{ message, finish_reason }] = completion.choices;
  return { message, finish: finish_reason, sampled: completion.usage.completion_tokens };
}

const scenarios = {
  async tools() {
    const given = { tools: [{ type: "function", function: named }], tool_choice: "auto", ...fields };
    const messages = asked("What is in the red box?");
    const first = await said(messages, given);
    const [call] = first.message.tool_calls;
    const { box } = JSON.parse(call.function.arguments);
    const result = { role: "tool", tool_call_id: call.id, content: `a coin in the ${box} box` };
    const second = await said([...messages, first.message, result], given);
    return { tool: call.function.name, finish: first.finish, answer: second.message.content };
  },
  async respond() {
    const ask = async (input) => {
      const body = {
        model: "any", instructions: "Be brief.", input, tools: [{ type: "function", ...named }],
        reasoning: { effort: "low" }, include: ["reasoning.encrypted_content"], store: false,
        metadata: { of: "a test" }, service_tier: "auto", parallel_tool_calls: true, user: "somebody",
      };
      return streamed ? await client.responses.stream(body).finalResponse() : await client.responses.create(body);
    };
    const input = [{ role: "user", content: [{ type: "input_text", text: "What is in the red box?" }] }];
    const first = await ask(input);
    const [call] = first.output.filter((item) => item.type === "function_call");
    const { box } = JSON.parse(call.arguments);
    const output = { type: "function_call_output", call_id: call.call_id, output: `a coin in the ${box} box` };
    const second = await ask([...input, ...first.output, output]);
    return { tool: call.name, answer: second.output_text };
  },
  async stop() {
    const told = await said(asked("Count."), { stop: [" four", "five"] });
    return { answer: told.message.content, finish: told.finish, sampled: told.sampled };
  },
  async long() {
    try {
      await said(asked("many words ".repeat(4000)));
    } catch (error) {
      if (!(error instanceof OpenAI.BadRequestError)) throw error;
      return { error: error.constructor.name, code: error.code, message: error.message };
    }
    return {};
  },
  // It goes away behind the first word, or where the whole answer does not come in time.
  async abort() {
    let heard = "";
    const messages = asked("Count.");
    if (streamed) {
      const stream = await client.chat.completions.create({ model: "any", messages, stream: true });
      for await (const chunk of stream) {
        heard = chunk.choices[0].delta.content;
        if (heard) break;
      }
    } else {
      try {
        await client.chat.completions.create({ model: "any", messages }, { timeout: 1500 });
      } catch (error) {
        heard = error.constructor.name;
      }
    }
    return { heard, answer: (await said(messages)).message.content };
  },
  async retry() {
    const messages = asked("What is in it?");
    const first = (await said(messages)).message;
    const second = (await said([...messages, first, { role: "user", content: "Sure?" }])).message;
    return { answer: first.content, again: second.content };
  },
};

process.stdout.write(JSON.stringify(await scenarios[scenario]()));
