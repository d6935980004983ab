// scorer.js
const amqp = require("amqplib");

(async () => {
  const connection = await amqp.connect(process.env.AMQP_URL || "amqp://guest:guest@127.0.0.1:5673/");
  const channel = await connection.createConfirmChannel();
  await channel.prefetch(16);
  await channel.consume("responses", async (message) => {
    const response = JSON.parse(message.content);
    const right = response.work.reference;
    const scores = response.samples.map((sample) => ({ score: sample.text === right ? 1 : 0 }));
    const reward = {
      task_id: response.task_id,
      scores,
      scoring_agent_id: "node-scorer",
      metadata: { timestamp: new Date().toISOString(), criteria: "equal to the reference" },
    };
    channel.sendToQueue("rewards", Buffer.from(JSON.stringify(reward)), { persistent: true });
    await channel.waitForConfirms();
    channel.ack(message);
  });
})();
