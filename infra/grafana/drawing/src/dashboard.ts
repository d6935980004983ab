/** A dashboard as Grafana stores it: those parts of its JSON that our generator writes and this page draws. */

import type { FieldConfig } from '@grafana/data';
import type { GraphFieldConfig, VizLegendOptions } from '@grafana/schema';

export interface Target {
  refId: string;
  expr: string;
  legendFormat?: string;
}

export interface Panel {
  id: number;
  type: 'row' | 'timeseries' | 'stat' | 'heatmap' | 'logs';
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  datasource?: { type: string; uid: string };
  targets?: Target[];
  fieldConfig?: { defaults: FieldConfig<GraphFieldConfig>; overrides: unknown[] };
  options?: {
    legend?: VizLegendOptions;
    colorMode?: string;
    graphMode?: string;
    justifyMode?: string;
    textMode?: string;
    color?: { steps: number };
    filterValues?: { le: number };
  };
}

export interface Variable {
  name: string;
  label?: string;
  type?: string;
  query: string;
}

export interface Dashboard {
  title: string;
  description: string;
  panels: Panel[];
  templating?: { list?: Variable[] };
}
