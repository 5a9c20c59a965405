// SPDX-License-Identifier: Apache-2.0
// What both pages share: the theme, and numbers for people.
"use strict";

const THEMES = ["system", "light", "dark"];

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function load(key, fallback) {
  try { return localStorage.getItem(key) ?? fallback; } catch { return fallback; }
}

function save(key, value) {
  try { localStorage.setItem(key, value); } catch { /* private windows may refuse: the setting lasts as long as the page */ }
}

applyTheme(load("theme", "system"));
document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const show = () => { button.textContent = `Theme: ${load("theme", "system")}`; };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(load("theme", "system")) + 1) % THEMES.length];
    save("theme", next);
    applyTheme(next);
    show();
  });
  show();
});

// The key lasts as long as the tab and serves both pages.
function headersWithKey() {
  let key = "";
  try { key = sessionStorage.getItem("key") ?? ""; } catch { /* as above */ }
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function keepKey(input, changed) {
  try { input.value = sessionStorage.getItem("key") ?? ""; } catch { /* as above */ }
  input.addEventListener("change", () => {
    try { sessionStorage.setItem("key", input.value); } catch { /* as above */ }
    changed();
  });
}

function formatNumber(value) {
  if (!Number.isFinite(value)) return "-";
  if (Math.abs(value) >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (Math.abs(value) >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return Math.abs(value) >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}
