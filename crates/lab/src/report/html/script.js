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
    const step = { ArrowRight: 1, ArrowLeft: -1 };
    list.hidden = false;
    list.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) select(tab);
    });
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement);
      const to = { Home: 0, End: tabs.length - 1 }[event.key]
        ?? (step[event.key] && (at + step[event.key] + tabs.length) % tabs.length);
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      select(tabs[to]);
      tabs[to].focus();
    });
    select(tabs[0]);
  }

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
