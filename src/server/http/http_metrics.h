// SPDX-License-Identifier: Apache-2.0
// Counters of the transport, in a prometheus registry that is the caller's and outlives them. Any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "server/http/exchange.h"

namespace deepinfer::server {

class HttpMetrics {
 public:
  HttpMetrics(prometheus::Registry& registry, const Router& router);

  // A request was answered; `route` is nullptr where none was found.
  void OnAnswered(const Route* route, int status, double seconds);

  prometheus::Gauge& connections;
  prometheus::Gauge& requests_open;
  prometheus::Counter& connections_accepted;
  prometheus::Counter& connections_refused;
  prometheus::Counter& bytes_sent;
  prometheus::Counter& clients_gone;
  prometheus::Counter& clients_cut_off;

 private:
  struct PerRoute {
    std::string name;
    std::array<std::atomic<prometheus::Counter*>, 600> answered{};  // by status; made when first needed
    std::atomic<prometheus::Histogram*> seconds{nullptr};
  };
  prometheus::Family<prometheus::Counter>& answered_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  const Route* first_ = nullptr;
  std::vector<std::unique_ptr<PerRoute>> routes_;  // in the router's order, then one for unknown paths
};

}  // namespace deepinfer::server
