// SPDX-License-Identifier: Apache-2.0
#include "texts.h"

#include <fmt/format.h>

#include <cstdlib>

#include "deepinfer/recipe.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace deepinfer;

const std::vector<std::string> kChat = {
    "Tell me a short story about a dog that finds a ball.",
    "What is the capital of France?",
    "Write three sentences about the sea.",
    "Which day comes after Tuesday?",
    "Tell me a story about a girl named Lily and her red boat.",
    "What is 12 plus 7?",
    "Explain in simple words why people sleep.",
    "Write a short poem about winter.",
    "Tell me about a bird that could not fly.",
    "Give me a list of five fruits.",
    "Tell me a story about two friends who build a house.",
    "What do bees do all day?",
    "Write a short letter to a friend.",
    "What is the capital of Japan?",
    "Tell me a story about a king and a mouse.",
    "How do you make a cup of tea?",
};

const std::vector<std::string> kProse = {
    "It was a bright cold morning, and the men who had come down from the village stood about the gate",
    "The old captain had not spoken for an hour; he sat with his back to the fire and",
    "When the letter arrived, she read it twice, folded it, and went out into the garden where",
    "There are few things which a man of his age can do with more pleasure than",
    "In the year that followed the war the house stood empty, and the children of the neighbourhood",
    "He had always supposed that the road to the river would be longer, but",
    "The doctor looked at the paper for some time before he answered that",
    "At the far end of the room, under the portrait of her grandfather, Miss Alice was",
};

struct Task {
  std::string system, text;
  std::string tools;  // JSON, or none
};

const std::string kWeather = R"([{"type":"function","function":{"name":"get_weather","description":"Get the weather of a city.",
"parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}])";
const std::string kMessage = R"([{"type":"function","function":{"name":"send_message","description":"Send a message.",
"parameters":{"type":"object","properties":{"to":{"type":"string"},"text":{"type":"string"}},"required":["to","text"]}}}])";

const std::vector<Task> kTasks = {
    {"", "What is the weather in Paris?", kWeather},
    {"", "What is the weather in Tokyo today?", kWeather},
    {"", "Send a message to Amir: happy birthday", kMessage},
    {"", "Tell Tina: see you on Monday", kMessage},
    {"", "Give me JSON about Chile: name, capital, region.", ""},
    {"", "Extract as JSON: Norway is a country in Europe. Its capital is Oslo.", ""},
    {"", "Give me a JSON list of three colors.", ""},
    {"", "Give me a JSON list of four animals.", ""},
    {"", "What is the capital of France?", ""},
    {"", "What is the capital of Japan?", ""},
    {"You are a helpful assistant.", "What is the capital of Italy?", ""},
    {"", "Which day comes after Tuesday?", ""},
    {"", "Which day comes before Sunday?", ""},
    {"", "Tom puts the ball in the box. Then he moves the ball to the bag. Where is the ball?", ""},
    {"", "Anna puts the key in the drawer. Ben moves the key to the basket. Where is the key?", ""},
    {"", "Once upon a time a dog lived by the sea. The secret word is marble. The dog liked to swim. What is the secret word?", ""},
    {"", "Lily went to the park. The secret number is 42. She saw a big tree. What is the secret number?", ""},
    {"", "What is 12 + 7?", ""},
    {"", "What is 17 + 25?", ""},
    {"", "What is 9 - 4?", ""},
    {"", "What is 6 x 7?", ""},
    {"", "Repeat: lantern copper meadow", ""},
    {"", "Repeat these words: anchor violet thunder", ""},
    {"", "Hello", ""},
};

[[noreturn]] void Fail(const std::string& why) {
  fmt::print(stderr, "drafts_bench: {}\n", why);
  std::exit(1);
}

std::string Request(const Task& task) {
  const std::string system = task.system.empty() ? "" : fmt::format(R"({{"role":"system","content":"{}"}},)", task.system);
  return fmt::format(R"({{"model":"m","messages":[{}{{"role":"user","content":"{}"}}]{}}})", system, task.text,
                     task.tools.empty() ? "" : ",\"tools\":" + task.tools);
}

std::vector<Task> TasksOf(const std::string& kind) {
  if (kind == "tasks") return kTasks;
  std::vector<Task> tasks;
  if (kind == "calls") {
    for (const char* city : {"Paris", "Tokyo", "Rome", "Madrid", "Berlin", "Cairo", "London", "Oslo"}) {
      tasks.push_back({"", fmt::format("What is the weather in {}?", city), kWeather});
    }
    return tasks;
  }
  for (const std::string& text : kChat) tasks.push_back({"", text, ""});
  return tasks;
}

Prompts Prose(const std::string& model) {
  const auto tokenizer = Tokenizer::Load(model + "/tokenizer.json");
  if (!tokenizer.ok()) Fail(tokenizer.status().message());
  Prompts prompts;
  for (const std::string& text : kProse) {
    std::vector<int32_t> ids = {0};
    const auto tokens = (*tokenizer)->EncodePlain(text);
    if (!tokens.ok()) Fail(tokens.status().message());
    ids.insert(ids.end(), tokens->begin(), tokens->end());
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

}  // namespace

Prompts MakePrompts(const std::string& model, const std::string& kind) {
  if (kind == "prose") return Prose(model);
  std::string why;
  const auto recipe = recipe::Recipe::Load(model + "/tokenizer.json", {.default_thinking = false}, &why);
  if (recipe == nullptr) Fail(why);
  Prompts prompts;
  for (const Task& task : TasksOf(kind)) {
    recipe::RequestError error;
    const auto prepared = recipe->Prepare(recipe::Protocol::kChat, Request(task), &error);
    if (prepared == nullptr) Fail(error.message);
    prompts.push_back(prepared->ids());
  }
  return prompts;
}
