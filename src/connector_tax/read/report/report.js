"use strict";
// Tables sort by a click on a column's head and filter by a word. Without scripts the page says the same.
(() => {
  const number = (text) => {
    const found = /[+\u2212-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?/i.exec(text);
    return found ? Number(found[0].replace("\u2212", "-").replaceAll(",", "")) : null;
  };
  const shown = (row, column) => (row.cells[column] ? row.cells[column].textContent.trim() : "");

  // Cells without a number come last, whichever way the others stand.
  const compare = (column, sign) => (a, b) => {
    const [first, second] = [shown(a, column), shown(b, column)];
    const [x, y] = [number(first), number(second)];
    if (x === null || y === null) {
      return x === y ? sign * first.localeCompare(second) : x === null ? 1 : -1;
    }
    return sign * (x - y);
  };

  const isNumeric = (rows, column) => rows.some((row) => row.cells[column] && row.cells[column].classList.contains("num"));

  // Rows that leave their first cell empty belong to the row above: such a table would lose its sense, and stays as it is.
  const holdsTogether = (rows) => rows.every((row) => shown(row, 0));

  const sort = (table, column, sign) => {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const numeric = isNumeric(rows, column);
    const byText = (a, b) => sign * shown(a, column).localeCompare(shown(b, column), undefined, { numeric: true });
    rows.sort(numeric ? compare(column, sign) : byText);
    body.append(...rows);
    [...table.tHead.rows[0].cells].forEach((head, k) => {
      head.setAttribute("aria-sort", k !== column ? "none" : sign > 0 ? "ascending" : "descending");
    });
  };

  const filter = (table, text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of table.tBodies[0].rows) {
      const has = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => has.includes(word));
      left += row.hidden ? 0 : 1;
    }
    return left;
  };

  const LONG = 8;
  document.querySelectorAll(".scroll > table").forEach((table) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length > 1 && holdsTogether(rows)) {
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        const label = head.textContent.trim();
        if (!label) {
          return;
        }
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = label;
        button.title = `sort by ${label}`;
        button.addEventListener("click", () => sort(table, column, head.getAttribute("aria-sort") === "ascending" ? -1 : 1));
        head.replaceChildren(button);
        head.setAttribute("aria-sort", "none");
      });
    }
    if (rows.length >= LONG) {
      const field = document.createElement("input");
      const count = document.createElement("output");
      field.type = "search";
      field.placeholder = "filter rows";
      field.setAttribute("aria-label", "filter the rows of this table");
      field.addEventListener("input", () => {
        const left = filter(table, field.value);
        count.textContent = field.value.trim() ? `${left} of ${rows.length} rows` : "";
      });
      const bar = document.createElement("div");
      bar.className = "filter";
      bar.append(field, count);
      table.parentElement.before(bar);
    }
  });

  // A link to a section that lies in a folded part opens it.
  const open = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    const folded = target && (target.closest("details") || target.nextElementSibling);
    if (folded && folded.tagName === "DETAILS") {
      folded.open = true;
    }
  };
  addEventListener("hashchange", open);
  open();
})();
