// Curves that a panel holds: only what may have changed is asked for again.

import { get } from "./dom.js";

/** Values of the last minute may still be on their way to the history. */
const SETTLE_SECONDS = 60;
/** So often the whole window is read anew, whatever was missed. */
const WHOLE_SECONDS = 600;

export class Curves {
  constructor(node) {
    this.node = node;
    this.held = null;
  }

  /** Return a window of so many hours. */
  async window(hours) {
    const held = this.held?.hours === hours && this.held.now < this.held.read + WHOLE_SECONDS ? this.held : null;
    const after = held ? settled(held) : 0;
    let data = await this.read(hours, after);
    if (held && data.seconds === held.seconds) data = { ...data, read: held.read, figures: joined(held.figures, data, after) };
    else if (held) data = await this.read(hours, 0);
    this.held = { ...data, hours, read: data.read ?? data.now };
    return this.held;
  }

  read(hours, after) {
    return get(`api/${this.node}/curves?hours=${hours}&after=${after}`);
  }
}

/** The start of the first point that may still change. */
export function settled({ now, seconds }) {
  return Math.max(0, Math.floor((now - SETTLE_SECONDS) / seconds - 1) * seconds);
}

/** Held points before a moment, as far as the window reaches, and the newer ones after them. */
export function joined(held, data, after) {
  const first = data.since - data.seconds;
  const names = [...new Set([...Object.keys(held), ...Object.keys(data.figures)])];
  const points = (name) => [...(held[name] ?? []).filter(([start]) => start > first && start < after), ...(data.figures[name] ?? [])];
  return Object.fromEntries(names.map((name) => [name, points(name)]).filter(([, found]) => found.length));
}
