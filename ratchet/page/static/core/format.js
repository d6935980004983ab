// Numbers, times and names as people read them. A missing value is an en dash.
export const NONE = "–";

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export const count = (value) => (missing(value) ? NONE : plain.format(value));
export const compact = (value) =>
  missing(value) ? NONE : value < 10_000 ? plain.format(value) : short.format(value);
export const score = (value) => (missing(value) ? NONE : value.toFixed(3));
export const signed = (value) => (missing(value) ? NONE : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`);
export const percent = (value) =>
  missing(value) ? NONE : `${(100 * value).toFixed(value < 0.0995 && value > 0 ? 1 : 0)} %`;

export function rate(value) {
  if (missing(value)) return NONE;
  return value >= 100 ? plain.format(value) : value.toFixed(1);
}

const inTwo = (large, unit, small, part) => `${large} ${unit}${small ? ` ${small} ${part}` : ""}`;

/** 0.0123 → "12 ms"; 75 → "1 min 15 s". */
export function seconds(value) {
  if (missing(value)) return NONE;
  if (value < 0.001) return value === 0 ? "0 ms" : "< 1 ms";
  if (value < 0.9995) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 60) return `${Number(value.toPrecision(3))} s`;
  const whole = Math.round(value);
  if (whole < 3600) return inTwo(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return inTwo(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return inTwo(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

export function bytes(value) {
  if (missing(value)) return NONE;
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${(value / 1000).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
}

const SUPERSCRIPT = { ...["⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"], "-": "⁻" };

/** An e-value: 0.35, 1,234, 5.7×10⁸. */
export function eValue(value) {
  if (missing(value)) return NONE;
  if (value < 0.01) return "< 0.01";
  if (value < 1000) return String(Number(value.toPrecision(value < 1 ? 2 : 3)));
  if (value < 10_000) return plain.format(value);
  const power = Math.floor(Math.log10(value));
  const raised = [...String(power)].map((digit) => SUPERSCRIPT[digit]).join("");
  const digits = (value / 10 ** power).toFixed(1).replace(/\.0$/, "");
  return digits === "1" ? `10${raised}` : `${digits}×10${raised}`;
}

const two = (value) => String(value).padStart(2, "0");

/** In the browser's time zone: 17:50:01, with the day where it is not today's. */
export function moment(iso, now = new Date()) {
  if (missing(iso)) return NONE;
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return String(iso);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === now.toDateString() ? clock : `${day(at)} ${clock}`;
}

const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;

export const words = (name) => String(name ?? NONE).replaceAll("_", " ");

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** With a capital and a full stop. */
export function sentence(text) {
  const trimmed = text.trim();
  if (!trimmed) return "";
  const whole = trimmed[0].toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
