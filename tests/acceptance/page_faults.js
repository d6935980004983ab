// Returns a sentence for each fault of the page it runs in; see page_faults.py.
() => {
  const faults = [];
  const shown = (el) => el.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !el.closest('.unseen');
  const said = (el) => `${el.tagName.toLowerCase()}.${el.getAttribute('class') ?? ''} "${(el.textContent ?? '').trim().slice(0, 40)}"`;

  const parse = (text) => {
    const n = (text.match(/[\d.]+/g) ?? []).map(Number);
    return text.startsWith('color(') ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const ground = (el) => {
    const layers = [];
    for (let at = el; at; at = at.parentElement) {
      const box = at.matches('svg a') ? at.querySelector('.box') : null;
      const one = parse(box ? getComputedStyle(box).fill : getComputedStyle(at).backgroundColor);
      if (one[3] > 0) layers.push(one);
      if (one[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const el = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(el) || el.closest('[disabled], script, style, title')) continue;
    const style = getComputedStyle(el);
    const below = ground(el);
    const ink = over(parse(el.closest('svg') ? style.fill : style.color), below);
    const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) faults.push(`contrast ${ratio.toFixed(2)} of ${said(el)}`);
  }

  const named = (el) => (el.getAttribute('aria-label') ?? '').trim() || el.getAttribute('aria-labelledby') ||
    (el.textContent ?? '').trim() || [...(el.labels ?? [])].some((label) => label.textContent.trim()) ||
    [...el.querySelectorAll('img')].some((img) => img.alt);
  for (const el of document.querySelectorAll('a, button, input, select, textarea, summary, [role=img], [role=meter], [role=group]')) {
    if (shown(el) && !named(el)) faults.push(`no name: ${said(el)}`);
  }
  for (const el of document.querySelectorAll('img:not([alt])')) faults.push(`no alt: ${el.src}`);
  for (const el of document.querySelectorAll('[tabindex]')) if (el.tabIndex > 0) faults.push(`tab order forced: ${said(el)}`);
  for (const table of document.querySelectorAll('table')) if (!table.querySelector('th[scope]')) faults.push('a table without headers');
  const ids = [...document.querySelectorAll('[id]')].map((el) => el.id);
  if (new Set(ids).size < ids.length) faults.push(`an id twice: ${ids}`);
  if (document.querySelectorAll('h1').length !== 1) faults.push(`${document.querySelectorAll('h1').length} main headings`);
  if (!document.documentElement.lang || !document.title) faults.push('no language or no title');
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`${document.documentElement.scrollWidth} px wide in ${innerWidth}`);
  for (const el of innerWidth < 640 ? document.querySelectorAll('body *') : []) {
    const sideways = ['auto', 'scroll'].includes(getComputedStyle(el).overflowX) && el.scrollWidth > el.clientWidth + 1;
    if (sideways && shown(el)) faults.push(`scrolls sideways: ${said(el)}`);
    const box = el.getBoundingClientRect();
    if (box.width > 0 && box.right > innerWidth + 1 && shown(el)) faults.push(`out at the right: ${said(el)}`);
  }
  return [...new Set(faults)];
}
