// Button that switches the theme: system, light, dark.

import { h } from "./dom.js";

const NEXT = { "": "light", light: "dark", dark: "" };
const WORDS = { "": "system", light: "light", dark: "dark" };

export function themeButton(ctx) {
  const now = document.documentElement.dataset.theme ?? "";
  const chosen = now in NEXT ? now : "";
  return h("button", { type: "button", class: "quiet", onclick: () => choose(NEXT[chosen], ctx) }, `Theme: ${WORDS[chosen]}`);
}

function choose(theme, ctx) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("penstock-theme", theme);
  } catch (error) {
    console.info("the theme is kept until this page is closed: this browser stores nothing", error);
  }
  ctx.render();
}
