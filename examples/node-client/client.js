// Asks tasks over AMQP: each gets one Result, over lost connections. `node client.js < tasks.jsonl`
const amqp = require("amqplib");
const readline = require("readline");

const URL = process.env.AMQP_URL || "amqp://guest:guest@127.0.0.1:5673/";
const PAUSE_MS = 500;

class Fleet {
  constructor(url) {
    this.url = url;
    this.open = new Map(); // by task_id: the task, and what to call with its Result
  }

  async connect() {
    this.connection = await amqp.connect(this.url);
    this.connection.on("error", () => {}); // "close" follows
    this.connection.on("close", () => this.reconnect());
    this.channel = await this.connection.createConfirmChannel();
    const { queue } = await this.channel.assertQueue("", { exclusive: true });
    this.replyTo = queue;
    await this.channel.consume(queue, (message) => this.receive(JSON.parse(message.content)), { noAck: true });
    for (const { task } of this.open.values()) this.publish(task); // the same task_id is not run again
  }

  async reconnect() {
    while (!this.closed) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      try {
        return await this.connect();
      } catch (error) {
        console.error(`no broker: ${error.message}`);
      }
    }
  }

  submit(task) {
    return new Promise((resolve) => {
      this.open.set(task.task_id, { task, resolve });
      this.publish(task);
    });
  }

  publish(task) {
    const body = Buffer.from(JSON.stringify(task));
    const refused = (error) => error && !this.closed && setTimeout(() => this.open.has(task.task_id) && this.publish(task), PAUSE_MS);
    try {
      this.channel.publish("ratchet", "tasks", body, { replyTo: this.replyTo, persistent: true }, refused);
    } catch (error) {
      // The channel is closed: the next connection publishes what is open.
    }
  }

  receive(result) {
    const waiting = this.open.get(result.task_id);
    this.open.delete(result.task_id);
    if (waiting) waiting.resolve(result); // a second one is passed over
  }

  async close() {
    this.closed = true;
    await this.connection.close();
  }
}

(async () => {
  const fleet = new Fleet(URL);
  await fleet.connect();
  const answered = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    answered.push(fleet.submit(JSON.parse(line)).then((result) => console.log(JSON.stringify(result))));
  }
  await Promise.all(answered);
  await fleet.close();
})();
