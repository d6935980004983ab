// The view library in one place: Preact's hooks, and `html` for templates in plain JavaScript.
import { h, render } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export { useEffect, useErrorBoundary, useId, useMemo, useRef, useState } from "../vendor/hooks.mjs";
export { render };
export const html = htm.bind(h);
