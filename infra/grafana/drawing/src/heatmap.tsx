/**
 * A heat map of a histogram over time: a row for each bucket, in Grafana's colours.
 *
 * Grafana's own is part of its server's front end and not of `@grafana/ui`; axes and canvas are, and drawn by it.
 */

import { interpolateOranges } from 'd3-scale-chromatic';
import { AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder, useTheme2 } from '@grafana/ui';
import type { DataFrame, GrafanaTheme2, TimeRange } from '@grafana/data';
import type uPlot from 'uplot';
import { TIME_ZONE, type Content } from './content';

const LEGEND_HEIGHT = 26;
const GAP = 1;

export function HeatMap({ panel, frames, range, width, height }: Content) {
  const theme = useTheme2();
  const rows = frames.filter((frame) => frame.fields[1].labels?.le !== '+Inf' || frame.fields[1].values.some(Boolean));
  const most = Math.max(...rows.flatMap((frame) => frame.fields[1].values));
  const colours = scheme(panel.options?.color?.steps ?? 64);
  const colour = (value: number) => colours[Math.round(Math.sqrt(value / most) * (colours.length - 1))];
  const painted = cells(rows, panel.options?.filterValues?.le ?? 0, colour);
  const config = plot(rows, range, theme, painted);
  const times = [range.from.valueOf(), range.to.valueOf()];
  return (
    <>
      <UPlotChart {...{ config, width }} height={height - LEGEND_HEIGHT} data={[times, [0, rows.length]]} />
      <Scale {...{ colours, most }} />
    </>
  );
}

/** From few to many. The dark theme takes the palette from its dark end. */
function scheme(steps: number): string[] {
  return Array.from({ length: steps }, (_, step) => interpolateOranges(1 - step / (steps - 1)));
}

function cells(rows: DataFrame[], atLeast: number, colour: (value: number) => string) {
  return (u: uPlot) => {
    rows.forEach((frame, row) => {
      const [times, counts] = frame.fields;
      const step = times.config.interval!;
      const top = u.valToPos(row + 1, 'y', true);
      const tall = u.valToPos(row, 'y', true) - top - GAP;
      counts.values.forEach((value, at) => {
        const left = u.valToPos(times.values[at] - step, 'x', true);
        if (value <= atLeast || left < u.bbox.left) return;
        u.ctx.fillStyle = colour(value);
        u.ctx.fillRect(left, top, u.valToPos(times.values[at], 'x', true) - left - GAP, tall);
      });
    });
  };
}

/** An axis with the buckets' upper edges, and one with the time. */
function plot(rows: DataFrame[], range: TimeRange, theme: GrafanaTheme2, paint: (u: uPlot) => void): UPlotConfigBuilder {
  const builder = new UPlotConfigBuilder(TIME_ZONE);
  const edges = ['', ...rows.map((frame) => frame.fields[1].labels?.le ?? '')];
  builder.addScale({
    scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right,
    range: () => [range.from.valueOf(), range.to.valueOf()],
  });
  builder.addScale({
    scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => [0, rows.length],
  });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: TIME_ZONE, theme });
  builder.addAxis({
    scaleKey: 'y', placement: AxisPlacement.Left, theme, splits: edges.map((_, row) => row), values: edges,
  });
  builder.addSeries({ scaleKey: 'y', theme, pathBuilder: () => null, pointsBuilder: () => undefined, show: true });
  builder.addHook('draw', paint);
  builder.setPadding([8, 20, 0, 0]);
  return builder;
}

function Scale({ colours, most }: { colours: string[]; most: number }) {
  const { typography, colors } = useTheme2();
  const bar = { width: 160, height: 8, background: `linear-gradient(to right, ${colours.join(', ')})` };
  const line = { display: 'flex', gap: 8, alignItems: 'center', paddingLeft: 8, color: colors.text.secondary };
  return (
    <div style={{ ...line, height: LEGEND_HEIGHT, fontSize: typography.bodySmall.fontSize }}>
      0 <div style={bar} /> {Math.round(most)}
    </div>
  );
}
