"use strict";
(() => {
  const root = document.documentElement;

  // Light and dark: what the reader's system says, until the reader says otherwise.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = dark() ? "Light page" : "Dark page";
  };
  // A page from a file may not be allowed to keep anything.
  try {
    const kept = localStorage.getItem("theme");
    if (kept) root.dataset.theme = kept;
  } catch { }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { }
    show();
  });
  system.addEventListener("change", show);
  show();

  // What the reader has chosen is kept in the address, so that a link shows the same: the workload,
  // which runtimes, and their order. What is left out is as on a page that has just been opened.
  const keys = ["workload", "only", "sort"];
  let choice = {};
  // The address of a section says nothing of this.
  const read = () => {
    const told = new URLSearchParams(location.hash.slice(1));
    if (keys.some((key) => told.has(key))) choice = Object.fromEntries(told);
  };
  const keep = (changes) => {
    Object.assign(choice, changes);
    const parts = keys
      .filter((key) => choice[key] !== undefined)
      .map((key) => `${key}=${choice[key].split(",").map(encodeURIComponent).join(",")}`);
    const hash = parts.length ? `#${parts.join("&")}` : "#";
    try { history.replaceState(null, "", hash); } catch { location.hash = hash; }
  };
  addEventListener("hashchange", read);
  read();

  // Tabs: one workload at a time. Without this script all of them are shown.
  const list = document.querySelector("[role=tablist]");
  if (list) {
    const tabs = [...list.querySelectorAll("[role=tab]")];
    const select = (chosen) => tabs.forEach((tab) => {
      const on = tab === chosen;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
    });
    const choose = (tab) => {
      select(tab);
      keep({ workload: tab === tabs[0] ? undefined : tab.textContent });
    };
    const follow = () => select(tabs.find((tab) => tab.textContent === choice.workload) ?? tabs[0]);
    const step = { ArrowRight: 1, ArrowLeft: -1 };
    list.hidden = false;
    list.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) choose(tab);
    });
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement);
      const to = { Home: 0, End: tabs.length - 1 }[event.key]
        ?? (step[event.key] && (at + step[event.key] + tabs.length) % tabs.length);
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      choose(tabs[to]);
      tabs[to].focus();
    });
    addEventListener("hashchange", follow);
    follow();
  }

  // Which runtimes are shown, and in which order.
  const form = document.getElementById("choice");
  if (form) {
    const boxes = [...form.querySelectorAll("input")];
    // The first order is the one that the page is made in.
    const sort = form.querySelector("select");
    const orders = [...(sort?.options ?? [])].map((option) => option.value);
    let order = orders[0];
    const names = boxes.map((box) => box.value);
    const first = (text) => text.trim().split(/\s/)[0];
    // Of each chart's rows, how far apart they are, and how they stand at first.
    const charts = [...document.querySelectorAll("svg.dumbbells")].map((svg) => {
      const rows = [...svg.querySelectorAll("g.row")];
      const below = [...svg.querySelectorAll(":scope > .tick")];
      const height = svg.getAttribute("height") - 0;
      const y = below.length ? below[0].getAttribute("y") - 0 : 0;
      const step = rows.length ? (height - 24) / rows.length : 0;
      return { svg, rows, below, height, y, step, lines: [...svg.querySelectorAll(":scope > .grid")] };
    });
    const show = () => {
      const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      const hides = (name) => names.includes(name) && !shown.has(name);
      charts.forEach(({ svg, rows, below, height, y, step, lines }) => {
        const key = (row) => row.dataset[order];
        // As the page is made: ratios of a few samples after the others, rows without one last.
        const rank = (row) => row.dataset.ratio ? ("few" in row.dataset ? 1 : 0) : 2;
        const number = (row) => key(row) ? Number(key(row)) : Infinity;
        const sorted = [...rows];
        if (order && rows.some((row) => "name" in row.dataset)) {
          sorted.sort((a, b) => {
            if (order === "name") return key(a).localeCompare(key(b), "en", { numeric: true });
            if (order === "ratio") return rank(a) - rank(b) || (Number(key(b)) || 0) - (Number(key(a)) || 0);
            return number(a) === number(b) ? 0 : number(a) - number(b);
          });
        }
        let at = 0;
        sorted.forEach((row) => {
          const off = hides(row.dataset.runtime);
          row.style.display = off ? "none" : "";
          if (!off) row.setAttribute("transform", `translate(0 ${step * at++})`);
        });
        const card = svg.closest("figure");
        if (rows.length && card && !("runtime" in card.dataset)) card.hidden = !at;
        const seen = rows.filter((row) => row.style.display !== "none");
        card?.querySelectorAll(".legend [data-kind]").forEach((item) => {
          item.hidden = !seen.some((row) => row.querySelector(`.${item.dataset.kind}`));
        });
        const less = step * (rows.length - at);
        svg.setAttribute("height", height - less);
        below.forEach((tick) => tick.setAttribute("y", y - less));
        lines.forEach((line) => line.setAttribute("y2", height - 24 - less));
      });
      document.querySelectorAll("#tables tbody tr, #figures tbody tr, .charts tbody tr").forEach((row) => {
        row.hidden = hides(first(row.cells[0].textContent));
      });
      // A chart or a sentence that is about none of those that are shown.
      document.querySelectorAll("figure[data-runtime], li[data-runtime]").forEach((part) => {
        part.hidden = part.dataset.runtime.split(",").every(hides);
      });
      // What is said of all runtimes is not said of some, whose sentences are there in its place.
      const all = shown.size === names.length;
      document.querySelectorAll(".all").forEach((part) => { part.hidden = !all; });
      document.querySelectorAll(".topic").forEach((topic) => {
        const said = [...topic.querySelectorAll("li")];
        topic.hidden = said.length > 0 && said.every((one) => one.hidden);
        if (!all && topic.matches("details")) topic.open = true;
      });
      document.getElementById("none").hidden = shown.size > 0;
    };
    const follow = () => {
      const only = choice.only?.split(",") ?? names;
      boxes.forEach((box) => { box.checked = only.includes(box.value); });
      order = orders.includes(choice.sort) ? choice.sort : orders[0];
      if (sort) sort.value = order;
      show();
    };
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => {
      order = sort?.value;
      show();
      const only = boxes.filter((box) => box.checked).map((box) => box.value);
      keep({
        only: only.length < boxes.length ? only.join(",") : undefined,
        sort: order === orders[0] ? undefined : order,
      });
    });
    addEventListener("hashchange", follow);
    follow();
  }

  // A link into something that is folded opens it.
  const open = () => {
    let at = null;
    try { at = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { }
    if (at instanceof HTMLDetailsElement) {
      at.open = true;
      at.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();

  // On paper nothing can be opened: what is in plain words is there in full.
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details.topic").forEach((topic) => { topic.open = true; });
  });

  // Tables: a heading sorts its column, once up, once more down.
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
        const compare = (a, b) => {
          const [one, other] = [key(a), key(b)];
          // What was not measured stays below, whichever way.
          if (one === "–" || other === "–") return (one === "–") - (other === "–");
          const numbers = [Number(one), Number(other)];
          const order = numbers.some(Number.isNaN) || one === "" || other === ""
            ? one.localeCompare(other, "en", { numeric: true })
            : numbers[0] - numbers[1];
          return down ? -order : order;
        };
        body.append(...[...body.rows].sort(compare));
      });
    });
  });
})();
