"use strict";
// Asks for what changes and puts it in place; a report is replaced only by a newer one. Without scripts the page loads itself anew.
(() => {
  const every = Number(document.body.dataset.refreshS) * 1000;
  const lost = document.getElementById("lost");
  const place = document.getElementById("report");

  // The report is as high as what it shows, so that one bar scrolls both.
  const fit = (frame) => {
    const inside = frame.contentDocument && frame.contentDocument.documentElement;
    if (inside) {
      const grow = () => { frame.style.height = `${Math.ceil(inside.getBoundingClientRect().height) + 2}px`; };
      new ResizeObserver(grow).observe(inside);
      grow();
    }
  };

  const show = (number) => {
    const frame = document.createElement("iframe");
    frame.title = place.getAttribute("aria-label");
    frame.src = `report?${number}`;
    frame.addEventListener("load", () => fit(frame));
    const old = place.querySelector("iframe");
    if (old) {
      // Its height stays until the new one has its own, or the window would jump.
      frame.style.height = old.style.height;
    }
    place.replaceChildren(frame);
  };

  const first = place.querySelector("iframe");
  if (first) {
    first.addEventListener("load", () => fit(first));
    fit(first);
  }

  let shown = document.getElementById("state").dataset.report;
  const put = (text) => {
    const come = new DOMParser().parseFromString(text, "text/html");
    for (const id of ["state", "making", "as-of"]) {
      const [old, now] = [document.getElementById(id), come.getElementById(id)];
      // What says the same stays, with what is marked in it.
      if (old.outerHTML !== now.outerHTML) {
        old.replaceWith(document.adoptNode(now));
      }
    }
    const { title, report } = document.getElementById("state").dataset;
    document.title = title;
    if (report !== shown) {
      shown = report;
      show(report);
    }
  };

  const look = async () => {
    try {
      const answer = await fetch("live", { cache: "no-store" });
      if (!answer.ok) {
        throw new Error(`answer ${answer.status}`);
      }
      put(await answer.text());
      lost.hidden = true;
    } catch (error) {
      lost.hidden = false;
      lost.title = String(error);
    }
    setTimeout(look, every);
  };
  setTimeout(look, every);
})();
