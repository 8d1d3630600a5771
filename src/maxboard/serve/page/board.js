// The table: rows are kept by player, so that a change moves them instead of drawing anew.
import * as format from "./format.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const MOVE_MS = 380;

export class Table {
  constructor(body, choose) {
    this.body = body;
    this.choose = choose;
    this.rows = new Map();
    this.chosen = "";
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-player]");
      if (row) choose(row.dataset.player);
    });
    body.addEventListener("keydown", (event) => {
      const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      const row = event.target.closest("tr");
      if (!next || !row || !row[next]) return;
      event.preventDefault();
      row[next].querySelector("button").focus();
    });
  }

  clear() {
    this.rows.clear();
    this.body.replaceChildren();
  }

  empty(text) {
    this.clear();
    const row = document.createElement("tr");
    const cell = Object.assign(document.createElement("td"), { className: "empty", colSpan: 4, textContent: text });
    row.append(cell);
    this.body.append(row);
  }

  select(player) {
    this.chosen = player;
    for (const [id, row] of this.rows) row.element.setAttribute("aria-selected", String(id === player));
  }

  show(entries, scale, animate) {
    if (!this.rows.size) this.body.replaceChildren();
    const moving = animate && !still.matches && document.visibilityState === "visible";
    const before = new Map();
    if (moving) for (const [id, row] of this.rows) before.set(id, row.element.getBoundingClientRect().top);
    const kept = new Set(entries.map((entry) => entry.player_id));
    for (const [id, row] of [...this.rows]) {
      if (!kept.has(id)) {
        row.element.remove();
        this.rows.delete(id);
      }
    }
    entries.forEach((entry, i) => {
      const row = this.rows.get(entry.player_id) || this.make(entry.player_id);
      this.fill(row, entry, scale, animate);
      if (this.body.children[i] !== row.element) this.body.insertBefore(row.element, this.body.children[i] || null);
    });
    if (moving) this.move(before);
  }

  make(player) {
    const element = document.createElement("tr");
    element.dataset.player = player;
    element.setAttribute("aria-selected", String(player === this.chosen));
    element.innerHTML = '<td><div class="place"><span class="step"></span><span class="medal"></span></div></td>' +
      '<td><button type="button" class="who"><span class="face" aria-hidden="true"></span><span></span></button></td>' +
      '<td class="score"></td><td class="when"></td>';
    const [step, medal] = element.querySelectorAll(".place span");
    const [face, name] = element.querySelectorAll(".who span");
    format.face(face, player);
    name.textContent = player;
    name.title = player;
    const row = { element, step, medal, score: element.children[2], when: element.children[3], seen: null };
    this.rows.set(player, row);
    return row;
  }

  fill(row, entry, scale, animate) {
    const seen = row.seen;
    if (seen && seen.rank === entry.rank && seen.achieved_at === entry.achieved_at && seen.score === entry.score) return;
    row.medal.textContent = format.count(entry.rank);
    row.medal.dataset.rank = entry.rank;
    row.score.textContent = format.score(entry.score, scale);
    row.when.textContent = format.when(entry.achieved_at);
    if (seen && seen.rank !== entry.rank) {
      const step = format.step({ rank: entry.rank, previous_rank: seen.rank, cause: "run" });
      row.step.textContent = step.text;
      row.step.className = `step ${step.kind}`;
    }
    if (animate && (!seen || seen.score !== entry.score)) {
      row.element.classList.remove("fresh");
      requestAnimationFrame(() => row.element.classList.add("fresh"));
    }
    row.seen = entry;
  }

  move(before) {
    for (const [id, row] of this.rows) {
      const was = before.get(id);
      if (was === undefined) continue;
      const by = was - row.element.getBoundingClientRect().top;
      if (by) row.element.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: MOVE_MS, easing: "cubic-bezier(.2,.8,.2,1)" });
    }
  }
}
