"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("script");

  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  // A file opened from disk may be denied storage; the choice then lasts until the page closes.
  const remembered = () => {
    try { return localStorage.getItem("noalias-theme"); } catch { return null; }
  };
  const remember = (theme) => {
    try { localStorage.setItem("noalias-theme", theme); } catch { return; }
  };
  let theme = themes.includes(remembered()) ? remembered() : "auto";
  show(theme);
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    remember(theme);
  });

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const label = document.createElement("button");
      label.type = "button";
      label.textContent = head.textContent;
      head.replaceChildren(label);
      label.addEventListener("click", () => {
        const numeric = head.dataset.kind === "number";
        const first = numeric ? "descending" : "ascending";
        const other = numeric ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const key = (row) => row.cells[column].dataset.key;
        const compare = numeric
          ? (a, b) => Number(key(a)) - Number(key(b))
          : (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true });
        const sign = order === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows].sort((a, b) => sign * compare(a, b));
        table.tBodies[0].append(...rows);
      });
    });
  }
})();
