// SPDX-License-Identifier: Apache-2.0
// The parser of the command line. The one file that includes CLI11, which is slow to compile.
#include "cli/cli.h"

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "cli/options.h"
#include "server/config.h"

#ifndef DI_VERSION
#define DI_VERSION "unknown"
#endif

namespace deepinfer::cli {
namespace {

constexpr const char* kAbout =
    "deepinfer: runs DeepSeek-V4.1 checkpoints as they are published.\n"
    "\n"
    "  deepinfer generate \"Once upon a time\"     continue a prompt with the bundled model\n"
    "  deepinfer chat                            talk to it\n"
    "  deepinfer info --model DIR                what a checkpoint is and needs\n"
    "\n"
    "Exit codes: 0 done; 1 an error, told on stderr; 2 a wrong command line; 130 interrupted.\n"
    "Environment: DEEPINFER_ACCELERATOR (cpu, cuda, reference), DEEPINFER_HF_MODEL_DIR (where checkpoints lie),\n"
    "HF_TOKEN (for downloads).";

// A lower limit. CLI11's own would tell of an upper one of 308 digits, and takes -1 for an unsigned number.
CLI::Validator AtLeast(int64_t low) {
  const auto check = [low](std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= low) return {};
    return fmt::format("expected a whole number of at least {}, found {}", low, text);
  };
  return CLI::Validator(check, fmt::format(">= {}", low));
}

std::string CheckSeed(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return fmt::format("expected 0..18446744073709551615, found {}", text);
}

void AddModelOption(CLI::App& app, ModelOptions* model) {
  app.add_option("-m,--model", model->model,
                 "a checkpoint directory, or org/name[@revision] in DEEPINFER_HF_MODEL_DIR or on the Hugging Face hub "
                 "(default: the bundled model)");
  app.add_flag("--offline", model->offline, "never download");
}

void AddBackendOptions(CLI::App& app, ModelOptions* model) {
  AddModelOption(app, model);
  app.add_option("--backend", model->backend, "cpu, cuda or reference (slow, float64 sums; default: DEEPINFER_ACCELERATOR, else cpu)");
  app.add_option("--variant", model->variant, "kernel variant of the cpu backend: avx512, avx2, portable (default: the best)");
  app.add_option("--activations", model->activations, "rounding of matrix inputs: fp32, bf16 or fp8")
      ->check(CLI::IsMember({"fp32", "bf16", "fp8"}))
      ->capture_default_str();
  app.add_option("--threads", model->threads, "threads of the cpu backend (default: every core)")->check(CLI::Range(0, 1024));
  app.add_option("--engram-tables", model->engram_tables, "of the cuda backend: on the host, pinned, or on the device")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str();
}

void AddContextOptions(CLI::App& app, ModelOptions* model) {
  app.add_option("--ctx", model->context, "positions of context to reserve (default: what the model was made for)")
      ->check(AtLeast(0));
  app.add_option("--chunk", model->chunk, "tokens of a prefill step")->check(AtLeast(1))->capture_default_str();
}

void AddDraftsOption(CLI::App& app, ModelOptions* model) {
  app.add_option("--drafts", model->drafts,
                 "speculative decoding, which changes no answer: auto (as many drafts as pay), on (the same, but the model must "
                 "have a draft), off, or how many in every step")
      ->capture_default_str();
  app.add_option("--verification", model->verification,
                 "which drafts stand: coupled (those that the model draws itself), or by chance, rejection or block (more of them, "
                 "distributed as without drafts, but other tokens for a seed)")
      ->check(CLI::IsMember({"coupled", "rejection", "block"}))
      ->capture_default_str();
}

void AddSamplingOptions(CLI::App& app, SamplingOptions* sampling) {
  app.add_option("--temperature", sampling->temperature, "0 is greedy")->capture_default_str();
  app.add_option("--top-p", sampling->top_p, "draw from the fewest tokens with this share of probability")->capture_default_str();
  app.add_option("--top-k", sampling->top_k, "draw from this many best tokens; 0: all")->capture_default_str();
  app.add_option("--min-p", sampling->min_p, "drop tokens less probable than this share of the best one")->capture_default_str();
  app.add_option("--repetition-penalty", sampling->repetition_penalty, "over 1: less of what prompt and answer already have")
      ->capture_default_str();
  app.add_option("--presence-penalty", sampling->presence_penalty, "taken off tokens that the answer has")->capture_default_str();
  app.add_option("--frequency-penalty", sampling->frequency_penalty, "the same, for each time")->capture_default_str();
  app.add_option("--seed", sampling->seed, "the same seed gives the same text (default: drawn, told by --json)")
      ->check(CLI::Validator(CheckSeed, ""));
}

void AddConstraintOptions(CLI::App& app, ConstraintOptions* constraint) {
  app.add_option("--json-schema", constraint->json_schema, "the answer is JSON that matches this schema: a file, or the schema itself")
      ->type_name("FILE|JSON");
  app.add_flag("--json-object", constraint->json_object, "the answer is a JSON object");
  app.add_option("--regex", constraint->regex, "the answer matches this regular expression (ECMAScript) as a whole");
  app.add_option("--choice", constraint->choices, "the answer is this text (may be given several times)")->allow_extra_args(false);
  app.add_option("--grammar", constraint->grammar_file, "the answer matches the GBNF or Lark grammar in this file")->type_name("FILE");
}

using Action = std::function<Result<int>()>;

void AddGenerate(CLI::App& root, GenerateOptions* o, Action* action) {
  CLI::App& app = *root.add_subcommand("generate", "continue a prompt; the text alone goes to stdout");
  app.add_option("prompt", o->prompt, "the prompt (default: read from --prompt-file or stdin)");
  app.add_option("-f,--prompt-file", o->prompt_file, "read the prompt from this file; - is stdin");
  AddBackendOptions(app, &o->model);
  AddContextOptions(app, &o->model);
  AddDraftsOption(app, &o->model);
  AddSamplingOptions(app, &o->sampling);
  AddConstraintOptions(app, &o->constraint);
  app.add_option("-n,--max-tokens", o->max_tokens, "most tokens to write")->check(AtLeast(0))->capture_default_str();
  app.add_option("--stop", o->stop, "stop before this text (may be given several times)")->allow_extra_args(false);
  app.add_flag("--ignore-eos", o->ignore_eos, "go on after the end-of-text token");
  app.add_flag("--json", o->json, "one JSON object instead of the text: ids, finish reason, seed, log-probabilities");
  app.add_option("--logprobs", o->logprobs, "with --json: log-probabilities, and those of this many alternatives");
  app.add_flag("--ids", o->ids, "print token ids instead of text; a prompt such as 5,6,7 is read as ids, without a begin token");
  app.add_flag("--special", o->special, "let control tokens spelled in the prompt become control tokens");
  app.add_flag("--stats", o->stats, "token counts and speed on stderr at the end");
  app.callback([=] { *action = [=] { return Generate(*o); }; });
}

void AddChat(CLI::App& root, ChatOptions* o, Action* action) {
  CLI::App& app = *root.add_subcommand("chat", "a conversation in the terminal");
  app.add_option("-s,--system", o->system, "system message");
  app.add_flag("--think", o->thinking, "let the model think before it answers");
  AddBackendOptions(app, &o->model);
  AddContextOptions(app, &o->model);
  AddDraftsOption(app, &o->model);
  AddSamplingOptions(app, &o->sampling);
  AddConstraintOptions(app, &o->constraint);
  app.add_option("-n,--max-tokens", o->max_tokens, "most tokens of an answer")->check(AtLeast(1))->capture_default_str();
  app.add_flag("--stats", o->stats, "token counts and times after each answer");
  app.callback([=] { *action = [=] { return Chat(*o); }; });
}

void AddRecipe(CLI::App& root, RecipeOptions* o, Action* action, bool render) {
  CLI::App& app = render ? *root.add_subcommand("render", "a request of a protocol (JSON on stdin) to the model's prompt")
                         : *root.add_subcommand("parse", "a model's output (stdin) to an answer of a protocol");
  AddModelOption(app, &o->model);
  app.add_option("--protocol", o->protocol, "chat, responses, messages or completions")->capture_default_str();
  app.add_option("--profile", o->profile, "default, or compatible: as deepseek-recipe 0.2.0 does it")->capture_default_str();
  app.add_flag("--ids", o->ids, render ? "one JSON array of token ids and nothing else" : "the output is token ids: 5,6,7");
  if (!render) {
    app.add_option("--request", o->request_file, "the request that the output answers")->required();
    app.add_flag("--events", o->events, "server-sent events instead of the whole answer");
  }
  app.callback([=] { *action = [=] { return render ? Render(*o) : Parse(*o); }; });
}

void AddScore(CLI::App& root, ScoreOptions* o, Action* action) {
  CLI::App& app = *root.add_subcommand("score", "logits of every position, or log-probabilities of given tokens as JSON");
  app.add_option("--ids", o->ids, "the tokens: 5,6,7");
  app.add_option("--ids-file", o->ids_file, "the tokens, as a JSON array in this file; - is stdin");
  app.add_option("--logits", o->logits, "write fp32 logits [n, vocab] as tensor \"logits\" of this safetensors file");
  app.add_option("--from", o->from, "prefill this many tokens, then decode one by one (default: prefill all)")
      ->check(AtLeast(0));
  app.add_option("--top", o->top, "also the best tokens after the last one")->check(AtLeast(0));
  AddBackendOptions(app, &o->model);
  AddContextOptions(app, &o->model);
  app.callback([=] { *action = [=] { return Score(*o); }; });
}

void AddKvMemoryOption(CLI::App& app, int64_t* bytes) {
  app.add_option("--kv-memory", *bytes, "memory for caches, such as 256MiB or 20GB")
      ->transform(CLI::AsSizeValue(true))
      ->default_str("256MiB");
}

void AddBatch(CLI::App& root, BatchOptions* o, Action* action) {
  CLI::App& app = *root.add_subcommand("batch", "answer a file of requests; goes on where an earlier run was ended");
  app.add_option("-i,--input", o->input, "JSON lines in the OpenAI batch layout, or {\"prompt\": ...}; - is stdin")->required();
  app.add_option("-o,--output", o->output, "results, a JSON line for each request, in the order in which they end")->required();
  app.add_option("--in-flight", o->in_flight, "requests at once")->check(CLI::Range(1, 4096))->capture_default_str();
  AddDraftsOption(app, &o->model);
  AddBackendOptions(app, &o->model);
  AddContextOptions(app, &o->model);
  AddKvMemoryOption(app, &o->kv_memory_bytes);
  app.callback([=] { *action = [=] { return Batch(*o); }; });
}

// The flags of server/config.h, which also knows defaults and how to read the texts.
void AddServe(CLI::App& root, ServeOptions* o, Action* action) {
  CLI::App& app = *root.add_subcommand("serve", "answer Chat Completions, Responses and Messages over HTTP; a page at /");
  app.footer("Each of these settings is also a key of the TOML file, in the table of its heading: [engine], [server] ...\n"
             "Flags win over the file. docs/server.md tells more.");
  app.add_option("--config", o->config_file, "a TOML file of settings");
  server::ServerConfig defaults;
  for (const server::Setting& setting : server::SettingsOf(&defaults)) {
    const std::string name = setting.name;
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(setting.value);
    CLI::Option* option = nullptr;
    if (std::holds_alternative<bool*>(setting.value)) {
      const std::function<void(int64_t)> take = [o, name](int64_t count) { o->flags.emplace_back(name, count > 0 ? "true" : "false"); };
      option = app.add_flag_function("--" + name + ",!--no-" + name, take,
                                     fmt::format("{} (default: {})", setting.help, server::TextOf(setting)));
    } else {
      const CLI::callback_t take = [o, name](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) o->flags.emplace_back(name, text);
        return true;
      };
      option = app.add_option("--" + name, take, setting.help)->type_name("");
      option->multi_option_policy(is_list ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
      option->default_str(server::TextOf(setting));
    }
    option->group(setting.group);
  }
  app.callback([=] { *action = [=] { return Serve(*o); }; });
}

void AddInfo(CLI::App& root, InfoOptions* o, Action* action) {
  CLI::App& app = *root.add_subcommand("info", "what a checkpoint is: geometry, bytes, memory, identities");
  AddBackendOptions(app, &o->model);
  AddKvMemoryOption(app, &o->kv_memory_bytes);
  app.add_option("--ctx", o->model.context, "tokens of a request (default: what the model was made for)")->check(AtLeast(0));
  app.add_flag("--json", o->json, "as one JSON object");
  app.callback([=] { *action = [=] { return Info(*o); }; });
}

void AddTokenize(CLI::App& root, TokenizeOptions* o, Action* action, bool forward) {
  CLI::App& app = forward ? *root.add_subcommand("tokenize", "text to token ids, as a JSON array")
                          : *root.add_subcommand("detokenize", "token ids to text");
  app.add_option("text", o->text, forward ? "the text (default: stdin)" : "the ids: 5,6,7 (default: stdin)");
  AddModelOption(app, &o->model);
  app.add_flag("--special", o->special, forward ? "spelled control tokens become control tokens" : "show control tokens");
  if (forward) app.add_flag("--pieces", o->pieces, "a line for each token: id and text");
  app.callback([=] { *action = [=] { return forward ? Tokenize(*o) : Detokenize(*o); }; });
}

// Takes the numbers 0 to 2 where the caller closed them, so that no file of ours gets one: a model would be read as the
// prompt, a message written into a download. The wrong way round, so that reading and writing still fail.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) std::abort();
  }
}

int Report(const Status& status) {
  std::fprintf(stderr, "deepinfer: %s\n", status.message().c_str());
  return kExitError;
}

}  // namespace

int Run(int argc, char** argv) {
  OccupyStandardStreams();
  CLI::App root(kAbout);
  root.set_version_flag("--version", "deepinfer " DI_VERSION);
  root.require_subcommand(1);
  Action action;
  GenerateOptions generate;
  ScoreOptions score;
  BatchOptions batch;
  ServeOptions serve;
  InfoOptions info;
  TokenizeOptions tokenize, detokenize;
  ChatOptions chat;
  RecipeOptions render, parse;
  AddGenerate(root, &generate, &action);
  AddChat(root, &chat, &action);
  AddScore(root, &score, &action);
  AddBatch(root, &batch, &action);
  AddServe(root, &serve, &action);
  AddInfo(root, &info, &action);
  AddTokenize(root, &tokenize, &action, /*forward=*/true);
  AddTokenize(root, &detokenize, &action, /*forward=*/false);
  AddRecipe(root, &render, &action, /*render=*/true);
  AddRecipe(root, &parse, &action, /*render=*/false);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return root.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const Result<int> result = action();
  return result.ok() ? *result : Report(result.status());
}

}  // namespace deepinfer::cli
