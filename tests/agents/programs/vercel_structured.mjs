// An object by Vercel's AI SDK: `node vercel_structured.mjs whole|stream`.
import { createRequire } from "node:module";

globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to stdout
const require = createRequire(import.meta.url);
const { generateObject, jsonSchema, streamObject } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");
const box = {
  type: "object",
  properties: { colour: { type: "string" }, coins: { type: "integer" } },
  required: ["colour", "coins"],
  additionalProperties: false,
};
const given = {
  model: createOpenAI().chat("any"),
  schema: jsonSchema(box),
  prompt: "What is in the red box?",
  maxRetries: 0,
};
const streamed = async () => {
  const told = streamObject(given);
  for await (const _ of told.partialObjectStream); // it is read to its end, or does not go on
  return told.object;
};
const found = process.argv[2] === "stream" ? await streamed() : (await generateObject(given)).object;
process.stdout.write(JSON.stringify(found));
