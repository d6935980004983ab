// agent.js
const amqp = require("amqplib");

(async () => {
  const connection = await amqp.connect(process.env.AMQP_URL || "amqp://guest:guest@127.0.0.1:5673/");
  const channel = await connection.createConfirmChannel();
  await channel.prefetch(16);
  await channel.consume("work.node", async (message) => {
    const work = JSON.parse(message.content);
    const asked = typeof work.input === "string" ? work.input : work.input.at(-1).content;
    const letters = asked.replace("sort: ", "");
    const response = {
      task_id: work.task_id,
      response: [...letters].sort().join(""),
      agent_id: "node",
      metadata: { timestamp: new Date().toISOString() },
    };
    channel.sendToQueue("responses.draft", Buffer.from(JSON.stringify(response)), { persistent: true });
    await channel.waitForConfirms();
    channel.ack(message);
  });
})();
