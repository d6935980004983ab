// Asks tasks over AMQP: each gets one Result, over lost connections. `node client.js < tasks.jsonl`
const amqp = require("amqplib");
const readline = require("readline");
const URL = process.env.AMQP_URL || "amqp://guest:guest@127.0.0.1:5673/";
const pause = () => new Promise((resolve) => setTimeout(resolve, 500));

class Fleet {
  open = new Map(); // by task_id: the task, and what to call with its Result

  async connect() {
    this.connection = await amqp.connect(URL);
    this.connection.on("error", () => {}); // "close" follows
    this.connection.on("close", () => this.reconnect());
    this.channel = await this.connection.createConfirmChannel();
    this.replyTo = (await this.channel.assertQueue("", { exclusive: true })).queue;
    await this.channel.consume(this.replyTo, (message) => this.receive(JSON.parse(message.content)), { noAck: true });
    for (const { task } of this.open.values()) this.publish(task); // the same task_id is not run again
  }

  async reconnect() {
    while (!this.closed) {
      await pause();
      try {
        return await this.connect();
      } catch (error) {
        console.error(`no broker: ${error.message}`);
      }
    }
  }

  submit(task) {
    const answered = new Promise((resolve) => this.open.set(task.task_id, { task, resolve }));
    this.publish(task);
    return answered;
  }

  publish(task) {
    const again = (error) => error && !this.closed && pause().then(() => this.open.has(task.task_id) && this.publish(task));
    try {
      const properties = { replyTo: this.replyTo, persistent: true };
      this.channel.publish("ratchet", "tasks", Buffer.from(JSON.stringify(task)), properties, again);
    } catch {} // the channel is closed: the next connection publishes what is open
  }

  receive(result) {
    this.open.get(result.task_id)?.resolve(result); // a second one is passed over
    this.open.delete(result.task_id);
  }
}

(async () => {
  const fleet = new Fleet();
  await fleet.connect();
  const printed = (result) => console.log(JSON.stringify(result));
  const answered = [];
  for await (const line of readline.createInterface({ input: process.stdin })) answered.push(fleet.submit(JSON.parse(line)).then(printed));
  await Promise.all(answered);
  fleet.closed = true;
  await fleet.connection.close();
})();
