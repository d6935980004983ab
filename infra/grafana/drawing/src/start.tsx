/**
 * `draw(dashboard, source)`: a generated dashboard, drawn with Grafana's panel library from a Prometheus's data.
 *
 * Resolves once all is drawn, with what each panel was answered. Leaves out panels of other sources (lines of logs),
 * and all that Grafana's server does: people, editing, alerts, annotations.
 */

import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import { createTheme, dateTimeFormat, ThemeContext } from '@grafana/data';
import { GlobalStyles, Icon, PanelChrome } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { flushSync } from 'react-dom';
import type { ReactNode } from 'react';
import { TIME_ZONE } from './content';
import type { Dashboard, Panel } from './dashboard';
import { PanelContent } from './panels';
import { answered, everything, timeRange, type Answer, type Source } from './prometheus';
import { version } from '../node_modules/@grafana/ui/package.json';

const WIDTH = 1280;
const MARGIN = 16;
const COLUMNS = 24;
const ROW_HEIGHT = 30;
const GUTTER = 8;
/** Grafana's grid. */

const theme = createTheme({ colors: { mode: 'dark' } });

interface Report {
  title: string;
  type: Panel['type'];
  queries: Answer['queries'];
}

async function draw(dashboard: Dashboard, source: Source): Promise<Report[]> {
  const variables: Record<string, string> = {};
  for (const variable of dashboard.templating?.list ?? []) variables[variable.name] = await everything(source, variable, variables);
  const asked = dashboard.panels.filter((panel) => panel.datasource?.type === 'prometheus');
  const bottom = Math.max(...asked.map(({ gridPos }) => gridPos.y));
  const panels = dashboard.panels.filter((panel) => asked.includes(panel) || (panel.type === 'row' && panel.gridPos.y < bottom));
  const answers = new Map<Panel, Answer>();
  for (const panel of asked) answers.set(panel, await answered(source, panel, variables, place(panel).width));
  const root = createRoot(document.getElementById('dashboard')!);
  flushSync(() => root.render(<Page {...{ source, answers }} dashboard={{ ...dashboard, panels }} />));
  await document.fonts.ready;
  return asked.map((panel) => ({ title: panel.title, type: panel.type, queries: answers.get(panel)!.queries }));
}

interface Drawn {
  dashboard: Dashboard;
  source: Source;
  answers: Map<Panel, Answer>;
}

function Page({ dashboard, source, answers }: Drawn) {
  const range = timeRange(source);
  const bottom = Math.max(...dashboard.panels.map((panel) => place(panel).top + place(panel).height));
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ width: WIDTH, padding: MARGIN, background: theme.colors.background.canvas }}>
        <Head {...{ dashboard, source }} />
        <div style={{ position: 'relative', height: bottom }}>
          {dashboard.panels.map((panel) => (
            <div key={panel.id} style={{ position: 'absolute', ...place(panel) }}>
              {panel.type === 'row' ? <Row title={panel.title} /> : <Box {...{ panel, range }} frames={answers.get(panel)?.frames ?? []} />}
            </div>
          ))}
        </div>
      </div>
    </ThemeContext.Provider>
  );
}

function Head({ dashboard, source }: Pick<Drawn, 'dashboard' | 'source'>) {
  const when = (seconds: number) => dateTimeFormat(seconds * 1000, { timeZone: TIME_ZONE });
  return (
    <div style={{ display: 'flex', gap: 16, alignItems: 'center', marginBottom: 12 }}>
      <span style={{ ...theme.typography.h4, margin: 0 }}>{dashboard.title}</span>
      {(dashboard.templating?.list ?? []).map(({ name, label }) => <Quiet key={name}>{label ?? name}: All</Quiet>)}
      <span style={{ flexGrow: 1 }} />
      <Quiet>drawn by Grafana's panel library, @grafana/ui {version}</Quiet>
      <Icon name="clock-nine" />
      <span>{`${when(source.from)} to ${when(source.to)} UTC`}</span>
    </div>
  );
}

function Row({ title }: { title: string }) {
  return (
    <div style={{ ...theme.typography.h5, display: 'flex', gap: 4, alignItems: 'center', height: '100%' }}>
      <Icon name="angle-down" /> {title}
    </div>
  );
}

function Box({ panel, ...given }: Pick<Parameters<typeof PanelContent>[0], 'panel' | 'range' | 'frames'>) {
  const { width, height } = place(panel);
  return (
    <PanelChrome {...{ width, height }} title={panel.title} description={panel.description}>
      {(innerWidth: number, innerHeight: number) => <PanelContent {...given} panel={panel} width={innerWidth} height={innerHeight} />}
    </PanelChrome>
  );
}

function Quiet({ children }: { children: ReactNode }) {
  return <span style={{ color: theme.colors.text.secondary }}>{children}</span>;
}

/** Pixels. */
function place({ gridPos: { x, y, w, h } }: Panel) {
  const column = (WIDTH - 2 * MARGIN + GUTTER) / COLUMNS;
  const row = ROW_HEIGHT + GUTTER;
  return { left: x * column, top: y * row, width: w * column - GUTTER, height: h * row - GUTTER };
}

Object.assign(window, { draw });
