/**
 * What a panel asks Prometheus, as Grafana's own data source asks it, and the answer as Grafana's data frames.
 *
 * Follows the data source in: the step (never below the scrape interval), `$__rate_interval`, "All" of a variable,
 * names of series, and histograms whose buckets are made disjoint for a heat map. Leaves out every other variable.
 */

import { dateTime, FieldType, toDataFrame, type DataFrame, type TimeRange } from '@grafana/data';
import type { Panel, Target, Variable } from './dashboard';

/** Seconds since the epoch, seconds, and Prometheus's address. */
export interface Source {
  prometheus: string;
  from: number;
  to: number;
  scrapeInterval: number;
}

export interface Answer {
  frames: DataFrame[];
  /** Of each query: its series with at least one point, or what Prometheus said against it. */
  queries: { expr: string; series: number; error?: string }[];
}

interface Answered {
  metric: Record<string, string>;
  values: [number, string][];
}

/** With a value at every step, null where there is none: there the line is broken. */
interface Series {
  metric: Record<string, string>;
  times: number[];
  values: (number | null)[];
}

const STEPS = [1, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600];

export function timeRange({ from, to }: Source): TimeRange {
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  return { ...range, raw: range };
}

/** The value that "All" stands for: any of the label's values. */
export async function everything(source: Source, variable: Variable, before: Record<string, string>): Promise<string> {
  const asked = /^label_values\((?<series>\w+(?:\{.*\})?),\s*(?<label>\w+)\)$/.exec(variable.query)?.groups;
  if (!asked) throw new Error(`variable ${variable.name}: can't ask for ${variable.query}`);
  const found = await ask<string[]>(source, `label/${asked.label}/values`, { 'match[]': interpolated(asked.series, before, 0) });
  return `(${found.join('|')})`;
}

export async function answered(
  source: Source, panel: Panel, variables: Record<string, string>, width: number,
): Promise<Answer> {
  const step = stepOf(source, width);
  const answer: Answer = { frames: [], queries: [] };
  for (const target of panel.targets ?? []) {
    const expr = interpolated(target.expr, variables, Math.max(step + source.scrapeInterval, 4 * source.scrapeInterval));
    const query: Answer['queries'][number] = { expr, series: 0 };
    answer.queries.push(query);
    try {
      const series = await range(source, expr, step);
      query.series = series.length;
      const frames = series.map((one) => frame(one, target, step));
      answer.frames.push(...(panel.type === 'heatmap' ? disjoint(frames) : frames));
    } catch (error) {
      query.error = String(error);
    }
  }
  return answer;
}

function stepOf({ from, to, scrapeInterval }: Source, width: number): number {
  const wanted = Math.max((to - from) / width, scrapeInterval);
  return STEPS.find((step) => step >= wanted) ?? 3600;
}

function interpolated(expr: string, variables: Record<string, string>, rateInterval: number): string {
  const all: Record<string, string> = { ...variables, __rate_interval: `${rateInterval}s` };
  return expr.replace(/\$(\w+)/g, (whole, name: string) => all[name] ?? whole);
}

async function range(source: Source, query: string, step: number): Promise<Series[]> {
  const aligned = (time: number) => Math.floor(time / step) * step;
  const times = { start: String(aligned(source.from)), end: String(aligned(source.to)), step: String(step) };
  const { result } = await ask<{ result: Answered[] }>(source, 'query_range', { query, ...times });
  return result.map(({ metric, values }) => {
    const known = new Map(values.map(([time, value]) => [time, finite(value)]));
    const all = Array.from({ length: (aligned(source.to) - aligned(source.from)) / step + 1 }, (_, at) => aligned(source.from) + at * step);
    return { metric, times: all, values: all.map((time) => known.get(time) ?? null) };
  }).filter(({ values }) => values.some((value) => value !== null));
}

function finite(value: string): number | null {
  return Number.isFinite(Number(value)) ? Number(value) : null;
}

async function ask<T>(source: Source, what: string, parameters: Record<string, string>): Promise<T> {
  const response = await fetch(`${source.prometheus}/api/v1/${what}?${new URLSearchParams(parameters)}`);
  const answer = await response.json();
  if (answer.status !== 'success') throw new Error(answer.error);
  return answer.data;
}

function frame({ metric, times, values }: Series, target: Target, step: number): DataFrame {
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000), config: { interval: step * 1000 } },
      {
        name: 'Value',
        type: FieldType.number,
        labels: metric,
        values,
        config: { displayNameFromDS: named(metric, target.legendFormat) },
      },
    ],
  });
}

function named(metric: Record<string, string>, legend = '__auto'): string {
  if (legend !== '__auto') return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label: string) => metric[label] ?? '');
  const { __name__: name = '', ...labels } = metric;
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return pairs.length ? `${name}{${pairs.join(', ')}}` : name || 'Value';
}

/** Prometheus's buckets hold all values up to `le`: from each the one below it is taken, in rising order of `le`. */
function disjoint(frames: DataFrame[]): DataFrame[] {
  const edge = (one: DataFrame) => (one.fields[1].labels?.le === '+Inf' ? Infinity : Number(one.fields[1].labels?.le));
  const rising = [...frames].sort((a, b) => edge(a) - edge(b));
  return rising.map((one, row) => {
    const [times, counts] = one.fields;
    const below: (number | null)[] = rising[row - 1]?.fields[1].values ?? [];
    const values = counts.values.map((count: number | null, at) => Math.max(0, (count ?? 0) - (below[at] ?? 0)));
    return { ...one, fields: [times, { ...counts, values }] };
  });
}
