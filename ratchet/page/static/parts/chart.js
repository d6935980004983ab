// Line charts on uPlot: axes with units, bands, a key, a sentence for screen readers, and the figures as a table.
import uPlot from "../vendor/uplot.mjs";
import { html, useEffect, useRef } from "../core/html.js";
import { colour, shown } from "../core/theme.js";
import { useStore } from "../core/store.js";

const FAMILY = 'system-ui, -apple-system, "Segoe UI", sans-serif';
const FONT = `11.5px ${FAMILY}`;
const TABLE_ROWS = 12;
const LEAST_TIME_S = 60;

/**
 * `lines`: {label, values, shade, dashed?, width?, key?: false} over `x`; `band`: [upper, lower] indices into them.
 * A line with `dots` is drawn as those alone ("full" or "hollow"), with bars of `errors` up and down from them.
 * `sentence` says what is to be seen. `y`: {log?, range?, format}; `xFormat` writes x in the table. `names`: what x
 * counts, where it counts things. `marks`: [x, word][].
 */
export function Chart({
  sentence,
  x,
  lines,
  band,
  y = {},
  xTime = false,
  xLabel,
  yLabel,
  height = 190,
  xFormat = String,
  names,
  marks,
}) {
  const room = useRef(null);
  const drawn = useRef(null);
  const theme = useStore(shown);
  const format = y.format ?? String;
  const shape = JSON.stringify([
    lines.map((one) => [one.label, one.shade, one.dashed]),
    band,
    y.log,
    xTime,
    xLabel,
    yLabel,
    height,
    names,
    marks,
    theme,
  ]);
  const range = useRef(null);
  range.current = y.range;

  useEffect(() => {
    const options = optionsOf(
      { lines, band, y: { ...y, format }, range, xTime, xLabel, yLabel, height, names, marks },
      room.current.clientWidth,
    );
    const chart = new uPlot(options, [x, ...lines.map((one) => one.values)], room.current);
    drawn.current = chart;
    const sizes = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width && width !== chart.width) chart.setSize({ width, height });
    });
    sizes.observe(room.current);
    return () => {
      sizes.disconnect();
      chart.destroy();
      drawn.current = null;
    };
  }, [shape]);

  useEffect(() => {
    drawn.current?.setData([x, ...lines.map((one) => one.values)]);
  }, [x, lines]);

  return html`<figure class="chart">
    <${Key} lines=${lines} band=${band} />
    <div class="room" ref=${room} role="img" aria-label=${sentence} />
    <${Figures} x=${x} lines=${lines} xLabel=${xLabel} xFormat=${names ? (at) => names[at] : xFormat}
      format=${format} />
  </figure>`;
}

function Key({ lines, band }) {
  const named = lines.filter((one) => one.key !== false);
  if (named.length < 2 && !band) return null;
  return html`<ul class="key" aria-hidden="true">
    ${named.map((one) =>
      html`<li key=${one.label}><span class="swatch ${one.dashed ? "dashed" : one.shade}" />${one.label}</li>`)}
    ${band && html`<li><span class="swatch band" />${band.label}</li>`}
  </ul>`;
}

function Figures({ x, lines, xLabel, xFormat, format }) {
  const shownAt =
    x.length <= TABLE_ROWS
      ? x.map((_, i) => i)
      : Array.from({ length: TABLE_ROWS }, (_, i) => Math.round((i * (x.length - 1)) / (TABLE_ROWS - 1)));
  return html`<details>
    <summary>Figures</summary>
    <div class="table"><table class="still">
      <thead><tr><th scope="col">${xLabel}</th>${lines.map((one) =>
        html`<th scope="col" class="n" key=${one.label}>${one.label}</th>`)}</tr></thead>
      <tbody>${shownAt.map(
        (i) => html`<tr key=${i}>
        <td data-label=${xLabel}>${xFormat(x[i])}</td>
        ${lines.map((one) =>
          html`<td class="n" key=${one.label}
            data-label=${one.label}>${one.values[i] === null ? "–" : format(one.values[i])}</td>`)}
      </tr>`,
      )}</tbody>
    </table></div>
  </details>`;
}

function optionsOf({ lines, band, y, range, xTime, xLabel, yLabel, height, names, marks }, width) {
  const named = names && ((at) => names[at] ?? "");
  const axis = {
    stroke: colour("muted"),
    font: FONT,
    labelFont: FONT,
    labelSize: 18,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(width, 120),
    height,
    padding: [10, xTime ? 26 : 10, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: {
        time: xTime,
        range: (self, low, high) =>
          names
            ? [-0.5, names.length - 0.5]
            : xTime ? [Math.min(low, high - LEAST_TIME_S), high] : [low, high === low ? low + 1 : high],
      },
      y: {
        distr: y.log ? 3 : 1,
        log: 10,
        range: (self, low, high) => range.current?.(low, high) ?? uPlot.rangeNum(low, high, 0.1, true),
      },
    },
    axes: [
      {
        ...axis,
        label: xLabel,
        size: 26,
        gap: 4,
        space: xTime ? 74 : 56,
        incrs: names && [1, 2, 5, 10, 20, 50, 100],
        values: (self, at) => at.map(named ?? (xTime ? clock : whole)),
      },
      {
        ...axis,
        label: yLabel,
        size: 46,
        gap: 5,
        space: 26,
        splits: y.log ? powers : undefined,
        values: (self, at) => at.map((v) => (v === null ? "" : y.format(v))),
      },
    ],
    series: [
      { label: xLabel },
      ...lines.map(seriesOf),
    ],
    bands: band ? [{ series: [band.upper + 1, band.lower + 1], fill: colour("band") }] : [],
    plugins: [pointer(y.format, named), underlay(lines, marks)],
  };
}

function seriesOf(one) {
  const stroke = one.dashed ? colour("warn") : one.shade === "none" ? "transparent" : colour(`line-${one.shade}`);
  const alone = !one.dashed && one.shade !== "none" && one.values.length === 1;
  const fill = one.dots === "hollow" ? colour("card") : stroke;
  return {
    label: one.label,
    stroke,
    width: one.shade === "none" ? 0 : (one.width ?? 2),
    dash: one.dashed ? [5, 4] : undefined,
    paths: one.dots ? () => null : undefined,
    points: { show: Boolean(one.dots) || alone, size: one.dots ? 10 : 6, fill },
    spanGaps: true,
  };
}

/** What lies under the lines: bars of their `errors`, and upright `marks` with a word each. */
function underlay(lines, marks) {
  const bars = (chart, { values, errors, shade }) => {
    const { ctx } = chart;
    ctx.strokeStyle = colour(`line-${shade}`);
    ctx.globalAlpha = 0.5;
    ctx.lineWidth = 3 * devicePixelRatio;
    values.forEach((value, i) => {
      if (value === null || errors[i] === null) return;
      const x = chart.valToPos(chart.data[0][i], "x", true);
      upright(ctx, x, chart.valToPos(value - errors[i], "y", true), chart.valToPos(value + errors[i], "y", true));
    });
  };
  const mark = (chart, [at, word]) => {
    const { ctx, bbox } = chart;
    const x = chart.valToPos(at, "x", true);
    ctx.strokeStyle = ctx.fillStyle = colour("muted");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([devicePixelRatio, 4 * devicePixelRatio]);
    upright(ctx, x, bbox.top, bbox.top + bbox.height);
    ctx.font = `${11 * devicePixelRatio}px ${FAMILY}`;
    ctx.textAlign = "left";
    ctx.fillText(word, x + 3 * devicePixelRatio, bbox.top + 9 * devicePixelRatio);
  };
  const drawAxes = (chart) => {
    chart.ctx.save();
    for (const one of lines) if (one.errors) bars(chart, one);
    chart.ctx.globalAlpha = 1;
    for (const one of marks ?? []) mark(chart, one);
    chart.ctx.restore();
  };
  return { hooks: { drawAxes } };
}

function upright(ctx, x, from, to) {
  ctx.beginPath();
  ctx.moveTo(x, from);
  ctx.lineTo(x, to);
  ctx.stroke();
}

const clock = (at) => (at === null ? "" : new Date(at * 1000).toTimeString().slice(0, 8));

const powers = (self, index, low, high) =>
  Array.from({ length: 40 }, (_, i) => 10 ** (i - 20)).filter(
    (power) => power >= low * 0.999 && power <= high * 1.001,
  );

const whole = (value) => (value === null || !Number.isInteger(value) ? "" : value.toLocaleString("en"));

/** The figures under the pointer, in a small box that stays inside the chart. */
function pointer(format, named) {
  const box = document.createElement("div");
  box.className = "under-pointer";
  return {
    hooks: {
      init: (chart) => chart.over.append(box),
      setCursor(chart) {
        const at = chart.cursor.idx;
        box.hidden = at === null || at === undefined;
        if (box.hidden) return;
        const rows = chart.series.slice(1).map((one, i) => [one, chart.data[i + 1][at]]);
        const x = chart.data[0][at];
        const head = named?.(x) ?? (chart.scales.x.time ? clock(x) : `${whole(x)} ${chart.series[0].label}`);
        const said = rows
          .filter(([one, value]) => value !== null && value !== undefined && !one.dash)
          .map(([one, value]) => `${one.label} ${format(value)}`);
        box.replaceChildren(
          ...[head, ...said].map((words) => Object.assign(document.createElement("div"), { textContent: words })),
        );
        const left = chart.cursor.left;
        box.style.left = left > chart.over.clientWidth / 2 ? "" : `${left + 12}px`;
        box.style.right = left > chart.over.clientWidth / 2 ? `${chart.over.clientWidth - left + 12}px` : "";
      },
    },
  };
}
