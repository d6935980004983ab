/** What the inside of a panel is drawn from. */

import type { DataFrame, TimeRange } from '@grafana/data';
import type { Panel } from './dashboard';

export const TIME_ZONE = 'utc';

export interface Content {
  panel: Panel;
  frames: DataFrame[];
  range: TimeRange;
  width: number;
  height: number;
}
