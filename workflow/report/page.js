"use strict";
// Without scripts the page says the same: these are a second scale, copying, and links into folded parts.
(() => {
  const copy = async (text, button) => {
    const was = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = was; }, 1500);
    } catch {
      window.prompt("Copy:", text);
    }
  };
  document.querySelectorAll(".command button").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => copy(button.previousElementSibling.textContent, button));
  });
  const markdown = document.getElementById("copy");
  if (markdown) {
    markdown.hidden = false;
    markdown.addEventListener("click", () => copy(document.getElementById("markdown").textContent, markdown));
  }
  const zoom = document.getElementById("zoom");
  if (zoom) {
    zoom.hidden = false;
    zoom.addEventListener("click", () => {
      const on = document.getElementById("taxes").classList.toggle("zoom");
      zoom.setAttribute("aria-pressed", String(on));
    });
  }
  const open = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") {
        at.open = true;
      }
    }
    if (target) {
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();
})();
