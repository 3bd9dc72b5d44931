"use strict";
// Pictures are enlarged by their buttons, and by + - 0 while their frame has the focus; what is touched says what it is.
for (const box of document.querySelectorAll(".zoomable")) {
  const canvas = box.querySelector(".canvas");
  const frame = box.querySelector(".frame");
  let zoom = 1;
  const change = (by) => {
    const middle = (frame.scrollLeft + frame.clientWidth / 2) / frame.scrollWidth;
    zoom = by === 0 ? 1 : Math.min(32, Math.max(0.25, zoom * by));
    canvas.style.setProperty("--zoom", zoom);
    frame.scrollLeft = middle * frame.scrollWidth - frame.clientWidth / 2;
  };
  for (const button of box.querySelectorAll("button")) {
    button.addEventListener("click", () => change(Number(button.dataset.zoom)));
  }
  frame.addEventListener("click", (event) => {
    const title = event.target.querySelector(":scope > title");
    box.querySelector(".told").textContent = title ? title.textContent : "";
  });
  const keys = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, "0": 0 };
  frame.addEventListener("keydown", (event) => {
    if (event.key in keys && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      change(keys[event.key]);
    }
  });
}
