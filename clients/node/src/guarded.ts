// A transaction that a handler cannot use any more when it is over: its connection may serve another request then.

/** `proxy` behaves like `target` until `end` is called; later use throws. */
export function guarded<T extends object>(target: T): { proxy: T; end: () => void } {
  let over = false;
  const check = (): void => {
    if (over) throw new Error('idempotency: the transaction has ended, so the handler cannot use it any more');
  };
  const proxy = new Proxy(target, {
    get(_, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (typeof value !== 'function') return value;
      if (name === 'constructor') return value;
      // Functions are kept by their name, and may be called later.
      return typeof target === 'function' ? guardedFunction(value, undefined, check) : guardedFunction(value, target, check);
    },
    set: (_, name, value) => Reflect.set(target, name, value, target),
    apply(_, self, values) {
      check();
      return Reflect.apply(target as any, self, values);
    },
  });
  return { proxy, end: () => { over = true; } };
}

function guardedFunction(call: any, self: object | undefined, check: () => void): unknown {
  return new Proxy(call, {
    apply(_, given, values) {
      check();
      return Reflect.apply(call, self ?? given, values);
    },
  });
}
