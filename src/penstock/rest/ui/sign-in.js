// Sign-in form: asks for the token of the service. It is stored only in this tab.

import { h } from "./dom.js";
import { notice } from "./parts.js";

export function signIn(why, unlock) {
  const submit = (event) => {
    event.preventDefault();
    const given = event.target.elements.token.value.trim();
    if (given) unlock(given);
  };
  return h("div", { class: "panel narrow" },
    h("h1", { tabindex: "-1" }, "Token"),
    h("p", {}, "This service requires a token: the one in ", h("code", {}, "penstock.serve(token=…)"),
      ", or the one that the service printed at its start."),
    why && notice("bad", "Not let in", why),
    h("form", { onsubmit: submit, autocomplete: "off" },
      h("label", { for: "token" }, "Token"),
      h("input", {
        id: "token", name: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false",
        "aria-describedby": "token-hint",
      }),
      h("p", { id: "token-hint", class: "hint" }, "It stays in this tab until you close it, and goes to this service only."),
      h("button", { type: "submit", class: "main" }, "Go in")));
}
