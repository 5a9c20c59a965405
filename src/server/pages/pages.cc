// SPDX-License-Identifier: Apache-2.0
#include "server/pages/pages.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace deepinfer::server {
namespace {

#include <server_pages.inc>

struct Page {
  std::string_view path, content_type, text;
};

constexpr std::string_view kHtml = "text/html; charset=utf-8", kScript = "text/javascript; charset=utf-8",
                           kStyle = "text/css; charset=utf-8";
constexpr Page kPages[] = {
    {"/", kHtml, k_index_html},           {"/status", kHtml, k_status_html},    {"/chat.js", kScript, k_chat_js},
    {"/status.js", kScript, k_status_js}, {"/common.js", kScript, k_common_js}, {"/chat.css", kStyle, k_chat_css},
    {"/status.css", kStyle, k_status_css}, {"/common.css", kStyle, k_common_css}, {"/icon.svg", "image/svg+xml", k_icon_svg},
};

// Nothing but files, requests and styles of this server; no markup of others around it.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

void SendPage(const Page& page, const std::string& tag, const HttpRequest& request, Responder* responder) {
  const HeaderList headers = {{"Content-Security-Policy", std::string(kPolicy)},
                              {"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cache-Control", "no-cache"},  // ask each time; unchanged pages are not sent again
                              {"ETag", tag}};
  const std::string* known = request.Header("if-none-match");
  const bool unchanged = known != nullptr && *known == tag;
  responder->Send(unchanged ? 304 : 200, page.content_type, unchanged ? std::string() : std::string(page.text), headers);
}

}  // namespace

void AddPageRoutes(Router* router) {
  for (const Page& page : kPages) {
    const std::string tag = fmt::format("\"{:016x}\"", std::hash<std::string_view>()(page.text));
    router->Add({.method = "GET",
                 .pattern = std::string(page.path),
                 .access = Access::kPublic,
                 .handler = [&page, tag](std::shared_ptr<const HttpRequest> request, std::shared_ptr<Responder> responder) {
                   SendPage(page, tag, *request, responder.get());
                 }});
  }
}

}  // namespace deepinfer::server
