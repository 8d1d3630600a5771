// One player: place, neighbours, and the history of their rank.
import { get, playerPath, Problem } from "./api.js";
import * as charts from "./charts.js";
import * as format from "./format.js";

const at = (id) => document.getElementById(id);
const AGAIN_MS = 2000;

export class Player {
  constructor(choose) {
    this.choose = choose;
    this.id = "";
    this.board = null;
    this.changes = [];
    this.timer = 0;
    at("around").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) choose(button.dataset.player);
    });
  }

  async open(board, id) {
    clearTimeout(this.timer);
    this.board = board;
    this.id = id;
    this.changes = [];
    at("person").hidden = false;
    at("who").textContent = id;
    at("who").title = id;
    format.face(at("face"), id);
    at("where").textContent = board.board;
    at("past").replaceChildren();
    at("history").replaceChildren();
    at("around").replaceChildren();
    at("facts").replaceChildren();
    await this.refresh();
    await this.past();
  }

  close() {
    clearTimeout(this.timer);
    this.id = "";
    at("person").hidden = true;
  }

  async refresh() {
    const [board, id] = [this.board, this.id];
    if (!id) return;
    clearTimeout(this.timer);
    try {
      const [place, around] = await Promise.all([
        get(playerPath(board.board, "players", id), { viewer: id }),
        get(playerPath(board.board, "around", id), { above: 3, below: 3, viewer: id }),
      ]);
      if (this.id === id && this.board === board) this.show(place, around);
    } catch (error) {
      if (this.id === id) this.facts([["Rank", error instanceof Problem ? "not now" : "–"]]);
    }
    if (this.id === id) this.timer = setTimeout(() => this.refresh(), AGAIN_MS);
  }

  show(place, around) {
    const there = place.rank !== null;
    at("where").textContent = there ? `best reached ${format.when(place.achieved_at)}` : `not on ${this.board.board}`;
    this.facts(there ? [
      ["Rank", format.count(place.rank)],
      ["Score", format.score(place.score, this.board.scale)],
      ["Ahead of", `${place.percentile.toFixed(place.percentile > 99 && place.percentile < 100 ? 2 : 0)} %`],
    ] : [["Rank", "–"], ["Players", format.count(place.members)]]);
    at("around").replaceChildren(...around.entries.map((entry) => {
      const item = document.createElement("li");
      if (entry.player_id === place.player_id) item.setAttribute("aria-current", "true");
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.dataset.player = entry.player_id;
      for (const text of [format.count(entry.rank), entry.player_id, format.score(entry.score, this.board.scale)]) {
        button.append(Object.assign(document.createElement("span"), { textContent: text }));
      }
      item.append(button);
      return item;
    }));
    if (!around.entries.length) at("around").append(Object.assign(document.createElement("li"), { className: "empty", textContent: "Nobody around" }));
  }

  facts(pairs) {
    const wanted = JSON.stringify(pairs);
    if (at("facts").dataset.shown === wanted && at("facts").children.length) return;
    at("facts").dataset.shown = wanted;
    at("facts").replaceChildren(...pairs.map(([term, text]) => {
      const box = document.createElement("div");
      box.append(Object.assign(document.createElement("dt"), { textContent: term }), Object.assign(document.createElement("dd"), { textContent: text }));
      return box;
    }));
  }

  async past() {
    const [board, id] = [this.board, this.id];
    try {
      const found = await get(playerPath(board.board, "players", id, "/changes"), { limit: 50 });
      if (this.id === id && this.board === board) {
        this.changes = [...found.changes].reverse();
        this.draw();
      }
    } catch { /* the history is an extra */ }
  }

  moved(changes) {
    const own = changes.filter((change) => change.player_id === this.id);
    if (!own.length) return;
    this.changes.push(...own);
    this.draw();
    this.refresh();
  }

  draw() {
    const ranked = this.changes.filter((change) => change.rank !== null);
    const points = ranked.map((change) => ({ at: Date.parse(change.applied_at), rank: change.rank }));
    const words = points.length ? `rank from ${points[0].rank} to ${points[points.length - 1].rank} in ${points.length} changes` : "";
    charts.ranks(at("history"), points, words);
    const listed = this.changes.slice(-6).reverse().map((change) => {
      const item = document.createElement("li");
      const step = format.step(change);
      item.append(
        Object.assign(document.createElement("span"), { textContent: change.rank === null ? change.cause : `rank ${format.count(change.rank)}, ${format.score(change.score, this.board.scale)}` }),
        Object.assign(document.createElement("span"), { className: `step ${step.kind}`, textContent: step.text }),
        Object.assign(document.createElement("span"), { className: "fine", textContent: format.when(change.applied_at).slice(-8) }),
      );
      return item;
    });
    if (!listed.length) listed.push(Object.assign(document.createElement("li"), { className: "empty", textContent: "No changes of late" }));
    at("past").replaceChildren(...listed);
  }
}
