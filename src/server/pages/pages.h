// SPDX-License-Identifier: Apache-2.0
// The web pages of the server: a chat at / and live charts at /status, static files inside the program. They are clients of the
// public endpoints like any other, load nothing from elsewhere, and are sent with a Content-Security-Policy that allows
// nothing else; text of the model enters them as text, never as markup. Thread-safe: constants.
#pragma once

#include "server/http/exchange.h"

namespace deepinfer::server {

// GET / and /status and their parts. Public: they hold no data; what they ask for wants a key where keys are set.
void AddPageRoutes(Router* router);

}  // namespace deepinfer::server
