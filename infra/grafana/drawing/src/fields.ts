/** A panel's field configuration put on its frames: Grafana's defaults for the kind of panel, then the dashboard's. */

import { FieldColorModeId, FieldType, getDisplayProcessor, type DataFrame, type Field, type FieldConfig, type GrafanaTheme2 } from '@grafana/data';
import {
  AxisColorMode, AxisPlacement, GraphDrawStyle, GraphGradientMode, LineInterpolation, ScaleDistribution, StackingMode, VisibilityMode,
  type GraphFieldConfig,
} from '@grafana/schema';
import type { Panel } from './dashboard';

/** Those of the panel "Time series"; `public/app/plugins/panel/timeseries/config.ts` in Grafana's source. */
const LINES: GraphFieldConfig = {
  drawStyle: GraphDrawStyle.Line,
  lineInterpolation: LineInterpolation.Linear,
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: GraphGradientMode.None,
  barAlignment: 0,
  stacking: { mode: StackingMode.None, group: 'A' },
  axisGridShow: true,
  axisCenteredZero: false,
  axisBorderShow: false,
  axisPlacement: AxisPlacement.Auto,
  axisColorMode: AxisColorMode.Text,
  scaleDistribution: { type: ScaleDistribution.Linear },
  showPoints: VisibilityMode.Auto,
  pointSize: 5,
  spanNulls: false,
};

export function configured(frames: DataFrame[], panel: Panel, theme: GrafanaTheme2, timeZone: string): DataFrame[] {
  let seriesIndex = 0;
  const given = defaults(panel);
  return frames.map((frame) => {
    const fields = frame.fields.map((field): Field => {
      const config: FieldConfig = field.type === FieldType.time ? field.config : { ...given, ...field.config };
      const ready: Field = { ...field, config, state: { ...field.state, seriesIndex } };
      ready.display = getDisplayProcessor({ field: ready, theme, timeZone });
      return ready;
    });
    seriesIndex += 1;
    return { ...frame, fields };
  });
}

/** JSON has no −Infinity: where the first threshold begins is null there. */
export function defaults(panel: Panel): FieldConfig {
  const given = panel.fieldConfig?.defaults ?? {};
  const mode = panel.type === 'stat' ? FieldColorModeId.Thresholds : FieldColorModeId.PaletteClassic;
  const thresholds = given.thresholds && {
    ...given.thresholds,
    steps: given.thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity })),
  };
  const custom = { ...LINES, ...given.custom, stacking: { ...LINES.stacking, ...given.custom?.stacking } };
  return { color: { mode }, ...given, ...(thresholds && { thresholds }), custom };
}
