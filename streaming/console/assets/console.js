// What pages need beside NiceGUI: the drawer, the colours, and a banner while the connection to the
// console is lost. Loaded from this server; no page holds a script of its own.
(() => {
  const wide = window.matchMedia("(min-width: 60rem)");

  function toggleDrawer(open) {
    const button = document.querySelector("button.menu");
    if (!button) return;
    document.body.classList.toggle("drawer-open", open);
    button.setAttribute("aria-expanded", String(open));
    if (open) document.querySelector("#navigation a")?.focus();
  }

  const THEMES = ["auto", "light", "dark"];

  function theme() {
    return document.cookie.match(/(?:^|; )placer-theme=(\w+)/)?.[1] ?? "auto";
  }

  function nameTheme() {
    const button = document.querySelector("button.theme");
    if (!button) return;
    const said = `Colours: ${theme() === "auto" ? "as the system" : theme()}`;
    button.setAttribute("aria-label", said);
    button.title = said;
  }

  function nextTheme() {
    const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
    document.cookie = `placer-theme=${next}; path=/; max-age=31536000; samesite=strict`;
    // A function of NiceGUI's own script.
    globalThis.setDark?.(next === "auto" ? null : next === "dark");
    nameTheme();
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest("button.menu")) {
      toggleDrawer(!document.body.classList.contains("drawer-open"));
    } else if (event.target.closest("button.theme")) {
      nextTheme();
    } else if (!wide.matches && !event.target.closest("#navigation")) {
      toggleDrawer(false);
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.body.classList.contains("drawer-open")) {
      toggleDrawer(false);
      document.querySelector("button.menu")?.focus();
    }
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const search = document.querySelector("input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });

  // NiceGUI shows this element while its socket is away; people want to know since when, and what
  // they type meanwhile would be lost.
  function watchConnection() {
    const popup = document.getElementById("popup");
    if (!popup) return;
    const [head, text] = popup.querySelectorAll("span");
    popup.setAttribute("role", "status");
    new MutationObserver(() => {
      const away = popup.ariaHidden === "false";
      const gate = document.querySelector("fieldset.gate");
      if (gate && (away || popup.dataset.since)) gate.disabled = away;
      if (!away || popup.dataset.since) {
        if (popup.ariaHidden === "true") delete popup.dataset.since;
        return;
      }
      const since = new Date();
      popup.dataset.since = since.toISOString();
      head.textContent = `Connection to the console lost at ${since.toLocaleTimeString()}.`;
      text.textContent = "This page shows the state of then; it goes on by itself when the console answers.";
    }).observe(popup, { attributes: true, attributeFilter: ["aria-hidden"] });
  }

  new MutationObserver((_, observer) => {
    if (!document.querySelector("button.theme")) return;
    nameTheme();
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", watchConnection);
  else watchConnection();
})();
