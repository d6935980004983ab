/** The content of each kind of panel, by Grafana's components. Leaves out lines of logs. */

import { FieldType, getDisplayProcessor, reduceField, ReducerID, type DataFrame, type DisplayValue, type Field } from '@grafana/data';
import { BigValue, TimeSeries, useTheme2, type BigValueColorMode, type BigValueGraphMode, type BigValueJustifyMode, type BigValueTextMode, type UPlotConfigBuilder } from '@grafana/ui';
import { TIME_ZONE, type Content } from './content';
import type { Panel } from './dashboard';
import { configured, defaults } from './fields';
import { HeatMap } from './heatmap';

export function PanelContent(content: Content) {
  if (content.panel.type === 'stat') return <Figure {...content} />;
  if (!content.frames.length) return <Words>No data</Words>;
  if (content.panel.type === 'heatmap') return <HeatMap {...content} />;
  return <Lines {...content} />;
}

/** Room at the right, so that the last time on the axis is not cut. */
const renderers = [{ fieldMap: {}, indicesOnly: [], init: (plot: UPlotConfigBuilder) => plot.setPadding([8, 20, 0, 0]) }];

function Lines({ panel, frames, range, width, height }: Content) {
  const ready = configured(frames, panel, useTheme2(), TIME_ZONE);
  const legend = panel.options!.legend!;
  return <TimeSeries {...{ width, height, legend, renderers }} frames={ready} timeRange={range} timeZone={TIME_ZONE} />;
}

function Figure({ panel, frames, range, width, height }: Content) {
  const theme = useTheme2();
  const options = panel.options!;
  const [times, field] = configured(frames.slice(0, 1), panel, theme, TIME_ZONE)[0]?.fields ?? [];
  const graph = field && options.graphMode === 'area';
  return (
    <BigValue
      {...{ width, height, theme }}
      value={field ? latest(field) : nothing(panel, theme)}
      sparkline={graph ? { y: { ...field, state: { range: span(field) } }, x: times, timeRange: range } : undefined}
      colorMode={options.colorMode as BigValueColorMode}
      graphMode={options.graphMode as BigValueGraphMode}
      justifyMode={options.justifyMode as BigValueJustifyMode}
      textMode={options.textMode as BigValueTextMode}
    />
  );
}

function latest(field: Field): DisplayValue {
  const value = reduceField({ field, reducers: [ReducerID.lastNotNull] })[ReducerID.lastNotNull];
  return field.display!(value);
}

function span(field: Field) {
  const { min, max } = reduceField({ field, reducers: [ReducerID.min, ReducerID.max] });
  return { min, max, delta: max - min };
}

function nothing(panel: Panel, theme: ReturnType<typeof useTheme2>): DisplayValue {
  const config = defaults(panel);
  return getDisplayProcessor({ field: { type: FieldType.number, config }, theme })(null);
}

function Words({ children }: { children: string }) {
  const style = { display: 'grid', placeItems: 'center', height: '100%', color: useTheme2().colors.text.secondary };
  return <div style={style}>{children}</div>;
}
