// How values look. Pure.
const number = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (value) => (value === null || value === undefined ? "–" : number.format(value));
export const short = (value) => (value === null ? "–" : value < 10000 ? count(Math.round(value)) : compact.format(value));
export const when = (text) => (text ? moment.format(new Date(text)) : "–");

export function score(value, scale) {
  if (value === null) return "–";
  return value.toLocaleString("en", { minimumFractionDigits: scale, maximumFractionDigits: scale });
}

export function age(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
  return span(ms);
}

export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function step(change) {
  if (change.rank === null) return change.cause === "run" ? { text: "–", kind: "" } : { text: "left", kind: "down" };
  if (change.previous_rank === null) return { text: "new", kind: "new" };
  const places = change.previous_rank - change.rank;
  if (places === 0) return { text: "=", kind: "" };
  return places > 0 ? { text: `▲ ${short(places)}`, kind: "up" } : { text: `▼ ${short(-places)}`, kind: "down" };
}

// A face of one's own for each id: the same colour every time.
export function face(element, id) {
  let hash = 0;
  for (const char of id) hash = (hash * 31 + char.charCodeAt(0)) >>> 0;
  element.style.setProperty("--hue", String(hash % 360));
  element.textContent = id.slice(-2).toUpperCase();
}
