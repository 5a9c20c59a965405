// SPDX-License-Identifier: Apache-2.0
// Stored responses: read, list the input, delete, cancel.
#include "core/json.h"
#include "server/api/api.h"
#include "server/api/caller.h"

namespace deepinfer::server {
namespace {

constexpr auto kProtocol = recipe::Protocol::kResponses;

// The same for one that never was, is gone, or is another key's.
void SendNoResponse(const HttpRequest& request, Responder& responder) {
  SendError(request, responder, kProtocol,
            {.status = 404,
             .message = "there is no stored response \"" + request.Capture("id") + "\"",
             .param = "response_id",
             .code = "response_not_found"});
}

// {"object": "list", ...} of items, with ids where they have none.
std::string ItemList(const std::string& response_id, Json items, bool newest_first) {
  Json::Array& list = items.Items();
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].IsObject() && list[i].Find("id") == nullptr) {
      list[i].Members().emplace_back("id", Json(fmt::format("item_{}_{}", response_id, i)));
    }
  }
  if (newest_first) std::reverse(list.begin(), list.end());
  const auto id_of = [](const Json& item) {
    const Json* id = item.Find("id");
    return id == nullptr ? Json() : *id;
  };
  const Json first = list.empty() ? Json() : id_of(list.front());
  const Json last = list.empty() ? Json() : id_of(list.back());
  return WriteJson(Json(Json::Object{{"object", Json("list")},
                                     {"data", std::move(items)},
                                     {"first_id", first},
                                     {"last_id", last},
                                     {"has_more", Json(false)}}));
}

}  // namespace

void Api::GetResponse(RequestPtr request, ResponderPtr responder) {
  if (request->QueryValue("stream").value_or("false") == "true") {
    return SendError(*request, *responder, kProtocol,
                     {.status = 400, .message = "a stored response cannot be streamed", .param = "stream"});
  }
  auto body = store_->Body(request->Capture("id"), OwnerOf(*request), UnixSeconds());
  if (!body) return SendNoResponse(*request, *responder);
  responder->SendJson(200, *std::move(body));
}

void Api::GetInputItems(RequestPtr request, ResponderPtr responder) {
  const auto text = store_->InputItems(request->Capture("id"), OwnerOf(*request), UnixSeconds());
  if (!text) return SendNoResponse(*request, *responder);
  auto items = ParseJson(*text, {.size_bytes_max = SIZE_MAX, .nodes_max = SIZE_MAX});
  if (!items.ok()) return SendError(*request, *responder, kProtocol, {.message = "the stored items cannot be read"});
  const bool newest_first = request->QueryValue("order").value_or("desc") != "asc";
  responder->SendJson(200, ItemList(request->Capture("id"), *std::move(items), newest_first));
}

void Api::DeleteResponse(RequestPtr request, ResponderPtr responder) {
  const std::string& id = request->Capture("id");
  if (!store_->Delete(id, OwnerOf(*request), UnixSeconds())) return SendNoResponse(*request, *responder);
  responder->SendJson(200, WriteJson(Json(Json::Object{{"id", Json(id)}, {"object", Json("response")}, {"deleted", Json(true)}})));
}

void Api::CancelResponse(RequestPtr request, ResponderPtr responder) {
  const auto then = [responder](const std::string& body) { responder->SendJson(200, body); };
  if (!store_->Cancel(request->Capture("id"), OwnerOf(*request), UnixSeconds(), then)) SendNoResponse(*request, *responder);
}

}  // namespace deepinfer::server
