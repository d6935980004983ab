// Vercel's AI SDK with a provider's defaults: `node vercel_client.mjs openai|anthropic whole|stream`.
import { createRequire } from "node:module";

globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to stdout
const require = createRequire(import.meta.url);
const { generateText, jsonSchema, stepCountIs, streamText, tool } = require("ai");
const [provider, way] = process.argv.slice(2);
const { createOpenAI } = require("@ai-sdk/openai");
const { createAnthropic } = require("@ai-sdk/anthropic");
const model = provider === "openai" ? createOpenAI()("any") : createAnthropic()("any");
const look = tool({
  description: "Look into a box.",
  inputSchema: jsonSchema({ type: "object", properties: { box: { type: "string" } }, required: ["box"] }),
  execute: async ({ box }) => `a coin in the ${box} box`,
});
const given = { model, tools: { look }, stopWhen: stepCountIs(3), prompt: "What is in the red box?", maxRetries: 0 };
const told = way === "stream" ? streamText(given) : await generateText(given);
const [answer, steps] = await Promise.all([told.text, told.steps]);
process.stdout.write(JSON.stringify({ answer, steps: steps.length }));
