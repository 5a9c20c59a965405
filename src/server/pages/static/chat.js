// SPDX-License-Identifier: Apache-2.0
// The chat page: a client of POST /v1/chat/completions and GET /v1/models, nothing more. Text of the model and of the server
// enters the page as text nodes only, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const SAVED_FIELDS = ["model", "system", "temperature", "top-p", "max-tokens", "seed", "stop", "tools"];

let conversation = [];   // messages as the protocol has them, without the system prompt
let running = null;      // AbortController of the answer that is streaming
let waiting = new Map(); // tool calls without a result yet: id -> the form that takes it

// ===== small helpers =====

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function announce(text, isError = false) {
  $("announce").textContent = text;
  $("announce").classList.toggle("error", isError);
}

async function errorOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text || `${response.status} ${response.statusText}`;
  }
}

// Text with ``` fences: what is inside becomes <pre>, all else stays as it is.
function showText(node, text) {
  const parts = text.split(/^```[^\n]*\n?/m);
  if (parts.length === 1) {
    node.textContent = text;
    return;
  }
  node.replaceChildren(...parts.map((part, i) => (i % 2 ? element("pre", { textContent: part }) : document.createTextNode(part))));
}

// ===== the request =====

function numberOf(id) {
  const text = $(id).value.trim();
  return text === "" ? undefined : Number(text);
}

function buildRequest() {
  const messages = conversation.slice();
  if ($("system").value.trim()) messages.unshift({ role: "system", content: $("system").value });
  const request = {
    model: $("model").value, messages, stream: true, stream_options: { include_usage: true },
    thinking: { type: $("thinking").checked ? "enabled" : "disabled" },
    temperature: numberOf("temperature"), top_p: numberOf("top-p"), max_tokens: numberOf("max-tokens"), seed: numberOf("seed"),
  };
  if ($("stop").value) request.stop = [$("stop").value];
  if ($("tools").value.trim()) {
    try {
      request.tools = JSON.parse($("tools").value);
    } catch (error) {
      throw new Error(`The tools are not JSON: ${error.message}`);
    }
  }
  return request;
}

// ===== messages on the page =====

function addMessage(role, title) {
  document.querySelector(".empty")?.remove();
  const node = element("article", { className: `message ${role}` }, element("h2", { textContent: title }));
  $("messages").append(node);
  return node;
}

function addUserMessage(text) {
  const body = element("div", { className: "body" });
  showText(body, text);
  addMessage("user", "You").append(body);
}

// Keeps the end in view while it was in view.
function following(change) {
  const list = $("messages");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  change();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

// An answer as it grows: thinking (folded), text, tool calls, figures.
class AnswerView {
  constructor() {
    this.node = addMessage("assistant", "deepinfer");
    this.node.classList.add("running");
    this.node.setAttribute("aria-busy", "true");
    this.message = { role: "assistant", content: "" };
    this.body = element("div", { className: "body" });
    this.figures = element("div", { className: "figures soft" });
    this.node.append(this.body, this.figures);
    this.startedAt = performance.now();
    this.firstAt = 0;
    this.pieces = 0;
  }

  take(delta) {
    if (!this.firstAt && (delta.content || delta.reasoning_content || delta.tool_calls)) this.firstAt = performance.now();
    this.pieces += 1;
    if (delta.reasoning_content) this.think(delta.reasoning_content);
    if (delta.content) {
      this.message.content += delta.content;
      showText(this.body, this.message.content);
    }
    for (const call of delta.tool_calls ?? []) this.takeCall(call);
  }

  think(text) {
    if (!this.thinkingBody) {
      this.thinkingBody = element("div", { className: "body" });
      this.thinking = element("details", {}, element("summary", { textContent: "Thinking" }), this.thinkingBody);
      this.node.insertBefore(this.thinking, this.body);
      this.message.reasoning_content = "";
    }
    this.message.reasoning_content += text;
    this.thinkingBody.textContent = this.message.reasoning_content;
  }

  takeCall(part) {
    this.message.tool_calls ??= [];
    this.callViews ??= [];
    const call = (this.message.tool_calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
    call.function.name += part.function?.name ?? "";
    call.function.arguments += part.function?.arguments ?? "";
    if (!this.callViews[part.index]) {
      const view = element("section", { className: "tool" }, element("h3"), element("pre"));
      view.setAttribute("aria-label", "Tool call");
      this.callViews[part.index] = view;
      this.node.insertBefore(view, this.figures);
    }
    const view = this.callViews[part.index];
    view.querySelector("h3").textContent = `${call.function.name}()`;
    view.querySelector("pre").textContent = call.function.arguments;
  }

  // Asks for the results of the calls; the conversation goes on when all are there.
  askForResults() {
    (this.message.tool_calls ?? []).forEach((call, i) => {
      const input = element("input", { placeholder: "result of this call" });
      input.setAttribute("aria-label", `Result of ${call.function.name}`);
      const form = element("form", {}, input, element("button", { textContent: "Give result" }));
      waiting.set(call.id, form);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        conversation.push({ role: "tool", tool_call_id: call.id, content: input.value });
        form.replaceWith(element("pre", { textContent: input.value }));
        waiting.delete(call.id);
        if (waiting.size === 0) answer();
      });
      this.callViews[i].append(form);
      if (i === 0) input.focus();
    });
  }

  showFigures(usage, finish) {
    const seconds = (performance.now() - (this.firstAt || this.startedAt)) / 1000;
    const tokens = usage?.completion_tokens ?? this.pieces;
    const parts = [`${tokens} tokens`];
    if (tokens > 1 && seconds > 0) parts.push(`${formatNumber((tokens - 1) / seconds)} tokens/s`);
    if (this.firstAt) parts.push(`first after ${formatNumber(this.firstAt - this.startedAt)} ms`);
    if (usage) parts.push(`prompt ${usage.prompt_tokens}, cached ${usage.prompt_tokens_details?.cached_tokens ?? 0}`);
    if (finish && finish !== "stop") parts.push(`ended: ${finish}`);
    this.figures.replaceChildren(...parts.map((text) => element("span", { textContent: text })));
  }

  end(usage, finish, error) {
    this.node.classList.remove("running");
    this.node.removeAttribute("aria-busy");
    this.showFigures(usage, finish);
    if (error) this.node.insertBefore(element("p", { className: "error", textContent: error }), this.figures);
    const copy = element("button", { type: "button", textContent: "Copy" });
    copy.addEventListener("click", () => navigator.clipboard?.writeText(this.message.content));
    const again = element("button", { type: "button", textContent: "Again" });
    again.addEventListener("click", () => { if (!running) answerAgain(this); });
    this.figures.append(copy, again);
  }
}

// ===== streaming =====

// Complete events of a text/event-stream body, as they come.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const complete = rest.split(/\r?\n\r?\n/);
    rest = complete.pop();
    for (const event of complete) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
  }
}

async function answer() {
  let request;
  try {
    request = buildRequest();
  } catch (error) {
    announce(error.message, true);
    return;
  }
  running = new AbortController();
  setRunning(true);
  const asked = conversation, signal = running.signal;
  const view = new AnswerView();
  $("messages").scrollTop = $("messages").scrollHeight;
  let usage, finish, failure = "";
  try {
    const response = await fetch("v1/chat/completions",
                                 { method: "POST", headers: { "Content-Type": "application/json", ...headersWithKey() },
                                   body: JSON.stringify(request), signal });
    if (!response.ok) throw new Error(await errorOf(response));
    for await (const data of events(response.body)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      following(() => {
        const choice = chunk.choices?.[0];
        if (choice) view.take(choice.delta);
        finish = choice?.finish_reason ?? finish;
        usage = chunk.usage ?? usage;
        view.showFigures(usage, finish);
      });
    }
    if (!finish) throw new Error("The answer broke off.");
  } catch (error) {
    failure = signal.aborted ? "" : error.message;
    finish = finish ?? (signal.aborted ? "stopped" : "error");
  }
  if (asked === conversation) finishAnswer(view, usage, finish, failure);  // else a new chat was begun meanwhile
}

function finishAnswer(view, usage, finish, failure) {
  following(() => view.end(usage, finish, failure));
  running = null;
  setRunning(false);
  announce(failure ? `Error: ${failure}` : `Answer complete: ${finish}.`, Boolean(failure));
  view.index = conversation.length;
  if (failure && !view.message.content && !view.message.tool_calls) return;
  // An answer that was cut in the middle of a call could not be sent back.
  if (finish !== "tool_calls") delete view.message.tool_calls;
  conversation.push(view.message);
  if (finish === "tool_calls") view.askForResults();
  else $("prompt").focus();
}

// The same question once more: everything from that answer on goes.
function answerAgain(view) {
  conversation.length = view.index;
  waiting.clear();
  while (view.node.nextSibling) view.node.nextSibling.remove();
  view.node.remove();
  answer();
}

// ===== controls =====

function setRunning(on) {
  $("send").disabled = on;
  $("stop-button").disabled = !on;
  if (on) announce("Answering.");
}

function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  if (waiting.size) {
    announce("First give the results of the tool calls.", true);
    return;
  }
  $("prompt").value = "";
  conversation.push({ role: "user", content: text });
  addUserMessage(text);
  answer();
}

function newChat() {
  running?.abort();
  running = null;
  setRunning(false);
  conversation = [];
  waiting.clear();
  $("messages").replaceChildren(element("p", { className: "empty", textContent:
      "Say something. Answers stream; what the model thinks before it answers is folded above the answer." }));
  announce("");
  $("prompt").focus();
}

async function loadModels() {
  try {
    const response = await fetch("v1/models", { headers: headersWithKey() });
    if (!response.ok) throw new Error(await errorOf(response));
    const names = (await response.json()).data.map((model) => model.id);
    $("model").replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
    if (names.includes(load("chat.model", ""))) $("model").value = load("chat.model", "");
    $("model-name").textContent = $("model").value;
    announce("");
  } catch (error) {
    announce(`No list of models: ${error.message}`, true);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  for (const id of SAVED_FIELDS) {
    if (id !== "model") $(id).value = load(`chat.${id}`, "");
    $(id).addEventListener("change", () => save(`chat.${id}`, $(id).value));
  }
  $("model").addEventListener("change", () => { $("model-name").textContent = $("model").value; });
  keepKey($("key"), loadModels);
  $("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  $("settings-form").addEventListener("submit", (event) => event.preventDefault());
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
  $("stop-button").addEventListener("click", () => running?.abort());
  $("new-chat").addEventListener("click", newChat);
  if (matchMedia("(max-width: 760px)").matches) $("settings").open = false;
  newChat();
  loadModels();
});
