// The page: boards, the chosen one as it moves, and what the keys do.
import { boardPath, follow, get, Problem, setKey } from "./api.js";
import { Table } from "./board.js";
import * as charts from "./charts.js";
import * as format from "./format.js";
import { Player } from "./player.js";

const at = (id) => document.getElementById(id);
const LIMIT = 10, MOVES = 8, PLACES = 60, AGAIN_MS = 15000;
const state = { boards: [], board: null, stream: null, paging: false, pulse: null, heard: 0, next: null, previous: null };
const series = { age: [], lag: [], rate: [] };
const table = new Table(at("rows"), choose);
const player = new Player(choose);

// ------------------------------------------------------------------------------------------ boards
async function boards() {
  try {
    const found = await get("/v1/boards");
    state.boards = found.boards;
    at("gate").hidden = true;
    tabs();
    const known = state.board && state.boards.find((one) => one.board === state.board.board);
    if (!state.board && state.boards.length) route();
    else if (state.board && state.board.current && !(known && known.current)) go(currentOf(state.board.name).board, player.id); // a new window began
  } catch (error) {
    failed(error);
  }
}

const names = () => [...new Set(state.boards.map((board) => board.name))];
const windows = (name) => state.boards.filter((board) => board.name === name).sort((a, b) => String(b.starts_at).localeCompare(String(a.starts_at)));
const currentOf = (name) => windows(name).find((board) => board.current) || windows(name)[0];

function tabs() {
  const chosen = state.board ? state.board.name : "";
  at("tabs").replaceChildren(...names().map((name) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name.replaceAll(":", " · ") });
    button.setAttribute("aria-current", String(name === chosen));
    button.addEventListener("click", () => go(currentOf(name).board, player.id));
    return button;
  }));
  if (!state.board) return;
  const listed = windows(chosen);
  at("window").replaceChildren(...listed.map((board) => new Option(board.current ? "current" : board.board.split(":").pop(), board.board, false, board.board === state.board.board)));
  at("window").parentElement.hidden = listed.length < 2;
}

function go(board, id = "") {
  location.hash = new URLSearchParams(id ? { board, player: id } : { board }).toString();
}

function route() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const board = state.boards.find((one) => one.board === wanted.get("board")) || state.boards.find((one) => one.current) || state.boards[0];
  if (!board) return;
  if (!state.board || state.board.board !== board.board) show(board);
  const id = wanted.get("player") || "";
  if (id && (id !== player.id || player.board.board !== board.board)) player.open(board, id);
  if (!id) player.close();
  table.select(id);
}

function choose(id) {
  go(state.board.board, id === player.id ? "" : id);
}

function show(board) {
  state.board = board;
  Object.assign(state, { paging: false, pulse: null, heard: 0 });
  for (const list of Object.values(series)) list.length = 0;
  table.clear();
  at("moves").replaceChildren(Object.assign(document.createElement("li"), { className: "empty", textContent: "Nothing has moved yet" }));
  at("title").textContent = board.name.replaceAll(":", " · ");
  document.title = `${board.name} · maxboard`;
  tabs();
  pager();
  if (state.stream) state.stream.abort();
  state.stream = new AbortController();
  problem("");
  follow("/v1/stream", { board: board.board, limit: LIMIT }, state.stream.signal, {
    open: () => link("live", "live"),
    failed,
    top,
    pulse,
    moves,
  });
}

// ------------------------------------------------------------------------------------------ events
function top(stretch) {
  if (state.paging || stretch.board !== state.board.board) return;
  problem("");
  const first = !table.rows.size;
  if (stretch.entries.length) table.show(stretch.entries, state.board.scale, !first);
  else table.empty("Nobody yet. The first run to arrive will be here.");
  state.members = stretch.members;
  pager();
}

function pulse(found) {
  if (found.board !== state.board.board) return;
  state.pulse = found;
  state.heard = performance.now();
  const live = found.state === "live";
  link(live ? "live" : "bad", live ? "live" : found.state.replace("-", " "));
  if (!live) {
    problem(`This board is ${found.state.replace("-", " ")} and gives no ranks now.`);
    table.clear();
  }
  state.members = found.members;
  remember("age", found.age_ms, format.age(found.age_ms), 2000);
  remember("lag", found.lag, found.lag === null ? "–" : format.short(found.lag), 10);
  remember("rate", found.rate, `${format.short(found.rate)}/s`, 10);
  words();
}

function remember(name, value, text, least) {
  const list = series[name];
  if (value !== null) list.push(value);
  if (list.length > PLACES) list.shift();
  at(name).querySelector(".value").textContent = text;
  charts.spark(at(name).querySelector(".plot"), list, least, `${name}: ${text} now, over the last minute`);
}

function moves(found) {
  player.moved(found.changes);
  if (document.visibilityState !== "visible") return;
  const items = found.changes.slice(-MOVES).reverse().map((change) => {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: change.player_id, title: change.player_id });
    button.addEventListener("click", () => go(state.board.board, change.player_id));
    const step = format.step(change);
    item.append(
      button,
      Object.assign(document.createElement("span"), { className: `step ${step.kind}`, textContent: step.text }),
      Object.assign(document.createElement("span"), { className: "fine", textContent: change.rank === null ? "" : `# ${format.count(change.rank)}` }),
    );
    return item;
  });
  const kept = [...at("moves").children].filter((item) => !item.classList.contains("empty"));
  at("moves").replaceChildren(...[...items, ...kept].slice(0, MOVES));
}

function words() {
  const board = state.board;
  if (!board) return;
  const parts = [];
  if (state.members !== null && state.members !== undefined) parts.push(`${format.count(state.members)} ${state.members === 1 ? "player" : "players"}`);
  if (board.resets_at) {
    const left = Date.parse(board.resets_at) - Date.now();
    parts.push(left > 0 ? `resets in ${format.span(left)}` : `ended ${format.when(board.resets_at)}`);
  }
  parts.push(board.order === "lowest" ? "lowest is best" : "highest is best");
  at("subtitle").textContent = parts.join(" · ");
  if (state.pulse && state.pulse.age_ms !== null) {
    const old = state.pulse.age_ms + performance.now() - state.heard;
    at("fresh").textContent = `Everything up to ${format.age(old)} ago is in, read from a ${state.pulse.source}`;
  }
}

function link(kind, text) {
  at("link").dataset.state = kind;
  at("link").lastElementChild.textContent = text;
}

function problem(text) {
  at("problem").hidden = !text;
  at("problem").textContent = text;
}

function failed(error) {
  link("bad", "not connected");
  if (error instanceof Problem && error.status === 401) {
    at("gate").hidden = false;
    return;
  }
  if (error instanceof Problem) problem(error.message);
}

// ------------------------------------------------------------------------------------------ pages
async function page(cursor) {
  const board = state.board;
  state.paging = true;
  try {
    const found = await get(boardPath(board.board, "top"), { limit: LIMIT, cursor });
    table.clear();
    table.show(found.entries, board.scale, false);
    table.select(player.id);
    Object.assign(state, { next: found.next, previous: found.previous, members: found.members });
    if (!found.previous) live();
  } catch (error) {
    if (error instanceof Problem && error.status === 410) live();
    else failed(error);
  }
  pager();
}

function live() {
  state.paging = false;
  state.next = state.previous = null;
}

function pager() {
  at("first").hidden = !state.paging;
  at("previous").disabled = !state.paging || !state.previous;
  at("next").disabled = state.paging ? !state.next : !((state.members || 0) > LIMIT);
}

at("next").addEventListener("click", async () => {
  if (state.paging) return page(state.next);
  const found = await get(boardPath(state.board.board, "top"), { limit: LIMIT });
  return found.next && page(found.next);
});
at("previous").addEventListener("click", () => page(state.previous));
at("first").addEventListener("click", () => { live(); table.clear(); show(state.board); });
at("window").addEventListener("change", (event) => go(event.target.value, player.id));
at("close").addEventListener("click", () => go(state.board.board));

// ------------------------------------------------------------------------------------------- input
at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = at("player").value.trim();
  if (id && state.board) {
    go(state.board.board, id);
    at("person").scrollIntoView({ block: "nearest" });
  }
});
at("gate").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key").value.trim());
  at("key").value = "";
  state.board = null;
  boards();
});

function theme(wanted) {
  document.documentElement.dataset.theme = wanted;
  localStorage.setItem("maxboard-theme", wanted);
}
const dark = matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = localStorage.getItem("maxboard-theme") || (dark.matches ? "dark" : "light");
dark.addEventListener("change", () => { if (!localStorage.getItem("maxboard-theme")) document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; });
const turn = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
at("theme").addEventListener("click", turn);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (document.activeElement === at("player")) at("player").blur();
    else if (player.id) go(state.board.board);
    return;
  }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "/") {
    event.preventDefault();
    at("player").focus();
    at("player").select();
  } else if (event.key === "t") turn();
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const all = names(), by = event.key === "ArrowRight" ? 1 : all.length - 1;
    if (state.board && all.length > 1) go(currentOf(all[(all.indexOf(state.board.name) + by) % all.length]).board, player.id);
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target === document.body) {
    const first = at("rows").querySelector("button");
    if (first) {
      event.preventDefault();
      first.focus();
    }
  }
});
addEventListener("hashchange", route);
setInterval(words, 1000);
setInterval(boards, AGAIN_MS);
boards();
