// Calls of the API, and its events. The key, if there is one, lives as long as the tab.
const KEY = "maxboard-key";

export const setKey = (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY));

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { authorization: `Bearer ${key}` } : {};
}

export class Problem extends Error {
  constructor(status, body) {
    super(body.message || `the server answered ${status}`);
    this.status = status;
    this.code = body.error || "";
    this.state = body.state || "";
  }
}

async function refuse(response) {
  let body = {};
  try {
    body = await response.json();
  } catch { /* no words */ }
  throw new Problem(response.status, body);
}

export async function get(path, query = {}, signal = undefined) {
  const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== undefined));
  const response = await fetch(`${path}?${given}`, { headers: headers(), signal });
  if (!response.ok) await refuse(response);
  return response.json();
}

export const boardPath = (board, rest) => `/v1/boards/${encodeURIComponent(board)}/${rest}`;
export const playerPath = (board, kind, player, rest = "") => boardPath(board, `${kind}/${encodeURIComponent(player)}${rest}`);

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

// Server-sent events over fetch, because EventSource cannot carry a key. Comes back by itself, later each time.
export async function follow(path, query, signal, handlers) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const response = await fetch(`${path}?${new URLSearchParams(query)}`, { headers: headers(), signal });
      if (!response.ok) await refuse(response);
      handlers.open();
      wait = 500;
      await read(response.body.pipeThrough(new TextDecoderStream()).getReader(), handlers);
    } catch (error) {
      if (signal.aborted) return;
      handlers.failed(error);
      if (error instanceof Problem && [401, 403, 404].includes(error.status)) return;
    }
    await pause(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, 10000);
  }
}

async function read(reader, handlers) {
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the server ended the stream");
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const kind = /^event: (.*)$/m.exec(event);
      const data = /^data: (.*)$/m.exec(event);
      if (kind && data && handlers[kind[1]]) handlers[kind[1]](JSON.parse(data[1]));
    }
  }
}
