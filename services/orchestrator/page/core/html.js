// The view library in one place: Preact's hooks, and `html` for templates in plain JavaScript.
import { Fragment, h, render } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs";
export { Fragment, h, render };
export const html = htm.bind(h);
