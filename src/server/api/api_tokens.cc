// SPDX-License-Identifier: Apache-2.0
// Models, and text to tokens and back.
#include <algorithm>
#include <ctime>

#include "core/json.h"
#include "server/api/api.h"

namespace deepinfer::server {
namespace {

constexpr size_t kDetokenizeMax = size_t{4} << 20;

std::string UtcTime(int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json Ids(const std::vector<int32_t>& ids) {
  Json::Array list;
  list.reserve(ids.size());
  for (const int32_t id : ids) list.push_back(Json::Integer(id));
  return Json(std::move(list));
}

// `body` with a member put in its place or added.
std::string WithMember(Json body, std::string_view name, Json value) {
  if (Json* found = body.Find(name); found != nullptr) {
    *found = std::move(value);
  } else {
    body.Members().emplace_back(name, std::move(value));
  }
  return WriteJson(body);
}

Result<Json> ParseObject(const std::string& body) {
  DI_ASSIGN_OR_RETURN(Json json, ParseJson(body));
  if (!json.IsObject()) return Error(Code::kInvalidArgument, "the request must be a JSON object, not {}", json.KindName());
  return json;
}

Result<bool> ReadFlag(const Json& body, std::string_view name, bool otherwise) {
  const Json* field = body.Find(name);
  if (field == nullptr || field->IsNull()) return otherwise;
  if (!field->IsBool()) return Error(Code::kInvalidArgument, "/{}: expected true or false", name);
  return field->AsBool();
}

}  // namespace

// Members of both OpenAI's and Anthropic's model objects.
std::string Api::ModelObject(const std::string& name) const {
  return WriteJson(Json(Json::Object{{"id", Json(name)},
                                     {"object", Json("model")},
                                     {"created", Json::Integer(started_at_)},
                                     {"owned_by", Json("deepinfer")},
                                     {"max_model_len", Json::Integer(engine_.context_max())},
                                     {"type", Json("model")},
                                     {"display_name", Json(name)},
                                     {"created_at", Json(UtcTime(started_at_))}}));
}

void Api::ListModels(RequestPtr, ResponderPtr responder) {
  std::string body = R"({"object":"list","data":[)";
  for (const std::string& name : options_.models) body += (&name == &options_.models[0] ? "" : ",") + ModelObject(name);
  body += R"(],"has_more":false,"first_id":)";
  AppendJsonString(options_.models.front(), false, &body);
  body += R"(,"last_id":)";
  AppendJsonString(options_.models.back(), false, &body);
  responder->SendJson(200, body + "}");
}

void Api::GetModel(RequestPtr request, ResponderPtr responder) {
  const std::string& name = request->Capture("name");
  if (std::find(options_.models.begin(), options_.models.end(), name) != options_.models.end()) {
    return responder->SendJson(200, ModelObject(name));
  }
  const auto protocol = request->Header("anthropic-version") ? recipe::Protocol::kMessages : recipe::Protocol::kChat;
  SendError(*request, *responder, protocol,
            {.status = 404,
             .message = fmt::format("there is no model \"{}\"; there are: {}", name, fmt::join(options_.models, ", ")),
             .param = "model",
             .code = "model_not_found"});
}

void Api::CountTokens(RequestPtr request, ResponderPtr responder) {
  ConversationItems unused;
  const auto prepared = Prepare(recipe::Protocol::kMessages, *request, *responder, &unused);
  if (prepared != nullptr) responder->SendJson(200, fmt::format(R"({{"input_tokens":{}}})", prepared->ids().size()));
}

// {"prompt": text} as plain text, the begin token in front unless "add_special_tokens" is false; {"messages": [...]} as Chat
// Completions would.
void Api::Tokenize(RequestPtr request, ResponderPtr responder) {
  const auto fail = [&](const Status& status) {
    SendError(*request, *responder, recipe::Protocol::kChat, ErrorOf(status));
  };
  auto json = ParseObject(request->body);
  if (!json.ok()) return fail(json.status());
  std::vector<int32_t> ids;
  if (json->Find("messages") != nullptr) {
    recipe::RequestError error;
    std::string body = json->Find("model") == nullptr ? WithMember(*json, "model", Json(options_.models[0])) : request->body;
    const auto prepared = recipe_->Prepare(recipe::Protocol::kChat, body, &error);
    if (prepared == nullptr) return responder->SendJson(error.http_status, std::move(error.body));
    ids = prepared->ids();
  } else {
    const Json* prompt = json->Find("prompt");
    if (prompt == nullptr || !prompt->IsString()) {
      return fail(Error(Code::kInvalidArgument, "/prompt: expected a string (or give \"messages\")"));
    }
    const auto special = ReadFlag(*json, "add_special_tokens", true);
    if (!special.ok()) return fail(special.status());
    ids = *special ? engine_.Tokenize(prompt->AsString()) : recipe_->Tokenize(prompt->AsString());
  }
  const auto strings = ReadFlag(*json, "return_token_strs", false);
  if (!strings.ok()) return fail(strings.status());
  Json::Object answer{{"count", Json::Integer(static_cast<int64_t>(ids.size()))},
                      {"max_model_len", Json::Integer(engine_.context_max())},
                      {"tokens", Ids(ids)}};
  if (*strings) {
    Json::Array texts;
    for (const int32_t& id : ids) texts.emplace_back(recipe_->Detokenize(std::span(&id, 1)));
    answer.emplace_back("token_strs", Json(std::move(texts)));
  }
  responder->SendJson(200, WriteJson(Json(std::move(answer))));
}

// {"tokens": [ids]} to {"prompt": text}.
void Api::Detokenize(RequestPtr request, ResponderPtr responder) {
  const auto fail = [&](const Status& status) {
    SendError(*request, *responder, recipe::Protocol::kChat, ErrorOf(status));
  };
  const auto json = ParseObject(request->body);
  if (!json.ok()) return fail(json.status());
  const Json* tokens = json->Find("tokens");
  if (tokens == nullptr || !tokens->IsArray() || tokens->Items().size() > kDetokenizeMax) {
    return fail(Error(Code::kInvalidArgument, "/tokens: expected an array of at most {} token ids", kDetokenizeMax));
  }
  std::vector<int32_t> ids;
  for (const Json& token : tokens->Items()) {
    const auto id = token.ToInt64();
    if (!id || *id < 0 || *id > INT32_MAX) {
      return fail(Error(Code::kInvalidArgument, "/tokens/{}: expected a token id", ids.size()));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  responder->SendJson(200, WriteJson(Json(Json::Object{{"prompt", Json(recipe_->Detokenize(ids))}})));
}

}  // namespace deepinfer::server
