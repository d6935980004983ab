// A value that components can watch: `store(initial)` to make one, `useStore(it)` to read it and be drawn again.
import { useEffect, useState } from "./html.js";

export function store(initial) {
  let value = initial;
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useStore(it) {
  const [value, setValue] = useState(it.get());
  useEffect(() => {
    setValue(it.get());
    return it.watch(setValue);
  }, [it]);
  return value;
}
