const fs = require("fs");
const asked = JSON.parse(fs.readFileSync(0, "utf8"));
const text = fs.readFileSync(asked.file, "utf8").replace(/^#!.*/, "");
process.stdout.write = process.stderr.write.bind(process.stderr);
const name = asked.function;
const functionIn = (main) => typeof main === "function" ? main[name] ?? main : main[name];
async function load() {
  const exports = /^\s*export\s/m.test(text);
  if (exports || /^\s*import\s*([\w{*][^;"']*from\s*)?["']/m.test(text)) {
    const whole = exports ? text : `${text}\n;export { ${name} };`;
    const found = await import("data:text/javascript;base64," + Buffer.from(whole).toString("base64"));
    return found[name] ?? functionIn(found.default);
  }
  const module = { exports: {} };
  const tail = `\n;return typeof ${name} === "undefined" ? undefined : ${name};`;
  const declared = new Function("module", "exports", "require", text + tail)(module, module.exports, require);
  return declared ?? functionIn(module.exports);
}
load().then((found) => found(...asked.arguments)).then((result) => {
  const written = JSON.stringify(result, (_, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError("no finite number");
    return value;
  });
  if (written === undefined) throw new TypeError("nothing that JSON can hold");
  fs.writeSync(1, written);
  process.exit();
});
